"""Fits that outlive the process that submitted them."""

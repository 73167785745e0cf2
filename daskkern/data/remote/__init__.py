"""Stores behind URLs."""

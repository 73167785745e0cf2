"""Conversion of Arrow columns to features in machine code, and the moments of these."""

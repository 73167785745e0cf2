"""Rows by position, and the seeded order of mini-batches."""

"""Atomic writes: folders and groups that are complete or absent."""

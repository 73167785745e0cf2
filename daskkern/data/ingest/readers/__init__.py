"""Readers of the file formats, one module each."""

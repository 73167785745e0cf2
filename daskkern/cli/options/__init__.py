"""Command-line options, and their conversion to settings."""

"""Commits of a run: written, found again, and resumed from."""

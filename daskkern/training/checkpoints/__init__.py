"""Commits and checkpoints of a run, and resuming from them."""

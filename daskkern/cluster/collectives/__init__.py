"""Collectives between the ranks of a gang."""

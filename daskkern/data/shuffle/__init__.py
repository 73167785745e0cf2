"""Shuffling of stores on disk."""

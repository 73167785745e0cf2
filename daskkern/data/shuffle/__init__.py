"""Shuffling of stores, on disk and behind URLs."""

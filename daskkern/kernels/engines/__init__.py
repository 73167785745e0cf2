"""Engines that compute kernel products."""

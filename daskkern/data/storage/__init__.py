"""Zarr stores: reading, writing and checking."""

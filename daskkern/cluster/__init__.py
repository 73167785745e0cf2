"""Gangs of ranks on a Dask cluster, and the collectives between them."""

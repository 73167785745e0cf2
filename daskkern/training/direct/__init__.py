"""Sources of rows that a fit reads where they lie: Datasets of xarray, tables in files, Zarr arrays."""

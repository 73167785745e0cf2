"""Sources of rows that a fit reads in place: xarray Datasets, tables in files, Zarr arrays."""

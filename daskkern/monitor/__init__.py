"""Progress, logs and histories of fits, and the page of Dask's dashboard."""

"""The page "Kernel fits" of Dask's dashboard. Imported by a scheduler that shows it: it needs bokeh."""

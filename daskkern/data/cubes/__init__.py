"""Cubes of labelled arrays: xarray Datasets and DataArrays as rows, and predictions as DataArrays."""

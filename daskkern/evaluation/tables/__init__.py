"""Predictions and scores of stores, table files and data frames, by this process or the workers of a cluster."""

"""Conversion of table columns to features, targets and weights."""

"""Columns that are not kernel functions of one point: Fastfood, TensorSketch, local and locally linear models."""

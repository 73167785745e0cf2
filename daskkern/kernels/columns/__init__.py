"""Columns of a model that are not plain kernel functions of a point."""

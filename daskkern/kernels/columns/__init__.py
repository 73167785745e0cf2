"""Columns of a model other than plain kernel functions of a point."""

"""Solvers of kernel ridge regression."""

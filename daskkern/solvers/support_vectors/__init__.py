"""Exact support vector machines: working sets, cached kernel rows, and compiled steps."""

from daskkern.solvers.support_vectors.solver import SVM

__all__ = ["SVM"]

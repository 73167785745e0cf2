"""Exact support vector machines: working sets, kernel rows in memory, steps as machine code."""

from daskkern.solvers.support_vectors.solver import SVM

__all__ = ["SVM"]

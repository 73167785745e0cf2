"""Exact kernel ridge regression in the leaves of a partition: :mod:`.solver` is the solver, :mod:`.costs` its costs."""

from daskkern.solvers.local_ridge.solver import LocalRidge

__all__ = ["LocalRidge"]

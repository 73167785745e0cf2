"""Coordinate descent for an L1 penalty: :mod:`.solver` passes over rows, :mod:`.quadratic` updates coordinates."""

from daskkern.solvers.coordinate_descent.solver import CoordinateDescent

__all__ = ["CoordinateDescent"]

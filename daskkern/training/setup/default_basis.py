"""The columns of a model where the user names none."""

from typing import Any

from daskkern.basis import AllRows, BasisSpec, Landmarks, LocalRows
from daskkern.solvers import Solver

MOST_CENTRES = 10_000
"""Rows up to which all of them are centres, and landmarks of more rows."""


def usual_basis(n_rows: int | None, solver: Solver[Any]) -> BasisSpec:
    """Return all rows as centres up to 10,000 rows, and 10,000 landmarks of more, or whose number is not known.

    The functions of fewer rows than landmarks are the same, and all rows as centres need no projections. Where the
    solver takes only one of the two, it is that one; where it needs a partition, one into leaves of 2,000 rows.
    """
    both: list[BasisSpec] = [Landmarks(MOST_CENTRES), AllRows()]
    if n_rows is not None and n_rows <= MOST_CENTRES:
        both.reverse()
    return next((basis for basis in (*both, LocalRows()) if basis.name in solver.bases), both[0])

"""The default columns and solver of a fit."""

from dataclasses import replace
from typing import Any

from daskkern.basis import AllRows, BasisSpec, Landmarks, LocalRows
from daskkern.losses import Squared
from daskkern.solvers import Direct, Solver
from daskkern.training.run.settings import FitSettings

MOST_CENTRES = 10_000
"""Rows up to which all of them are centres, and landmarks of more rows."""
MOST_EXACT = 3000
"""Rows up to which least squares are solved exactly: about the seconds of ten epochs, and n^2 numbers in float64."""
_JITTER = 1e-2  # where targets have no noise, the best penalty is below the rounding of kernel values
_EPOCHS = ("max_epochs", "batch_size", "early_stopping", "sampling", "max_seconds")
_RANKS = ("virtual_shards", "groups", "reading", "memory_budget", "keep_blocks", "disk_budget", "precision")


def usual_basis(n_rows: int | None, solver: Solver[Any]) -> BasisSpec:
    """Return all rows as centres up to 10,000 rows, and 10,000 landmarks of more, or whose number is not known.

    The functions of fewer rows than landmarks are the same, and all rows as centres need no projections. Where the
    solver takes only one of the two, it is that one; where it needs a partition, one into leaves of 2,000 rows.
    """
    both: list[BasisSpec] = [Landmarks(MOST_CENTRES), AllRows()]
    if n_rows is not None and n_rows <= MOST_CENTRES:
        both.reverse()
    return next((basis for basis in (*both, LocalRows()) if basis.name in solver.bases), both[0])


def exact_where_small(settings: FitSettings, n_rows: int | None) -> FitSettings:
    """Return `settings`, whose solver nobody named, with the exact one for few rows and the squared loss.

    Up to 3,000 rows with all of them as centres, :class:`daskkern.solvers.Direct` takes about the time of ten epochs,
    which leave the components of small eigenvalues unfitted: on 189 tables of up to 2,600 rows the squared error of
    EigenPro was 1.9 times as large (geometric mean; median 1.02; docs/choose.md). It has no epochs and one rank:
    settings of epochs, batches, ranks and memory that are not the defaults keep the solver. So does a penalty of 0,
    where the number of epochs is what regularises.
    """
    few = n_rows is not None and n_rows <= MOST_EXACT
    whole = settings.basis.all_rows and settings.basis.leaf_size is None
    if not few or not whole or not isinstance(settings.loss, Squared) or settings.alpha == 0:
        return settings
    usual = FitSettings(settings.kernel, settings.loss, settings.basis, settings.solver)
    if any(getattr(settings, name) != getattr(usual, name) for name in (*_EPOCHS, *_RANKS)):
        return settings
    return replace(settings, solver=Direct(max_jitter=_JITTER))

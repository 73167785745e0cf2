"""The columns, the solver and the dtype of a fit where the user names none."""

from dataclasses import replace
from typing import Any

from daskkern.basis import AllRows, BasisSpec, Landmarks, LocalRows
from daskkern.errors import SpecError
from daskkern.losses import Squared
from daskkern.solvers import Direct, Solver
from daskkern.training.run.settings import FitSettings

MOST_CENTRES = 10_000
"""Rows up to which all of them are centres, and landmarks of more rows."""
MOST_EXACT = 5000
"""Rows up to which least squares are solved exactly: at most 1.8 times the seconds of ten epochs, and n^2 float64."""
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

    Up to 5,000 rows with all of them as centres, :class:`daskkern.solvers.Direct` takes about the time of ten epochs,
    which leave the components of small eigenvalues unfitted: on 190 tables of up to 2,600 rows the squared error of
    EigenPro was 2.2 times as large (geometric mean; median 1.03; docs/choose.md). It has no epochs and one rank:
    settings of epochs, batches, ranks and memory that are not the defaults keep the solver. So does a penalty of 0,
    where the number of epochs is what regularises.
    """
    few = n_rows is not None and n_rows <= MOST_EXACT
    if not few or settings.basis.name != AllRows.name or not isinstance(settings.loss, Squared) or settings.alpha == 0:
        return settings
    usual = FitSettings(settings.kernel, settings.loss, settings.basis, settings.solver)
    if any(getattr(settings, name) != getattr(usual, name) for name in (*_EPOCHS, *_RANKS)):
        return settings
    return replace(settings, solver=Direct(max_jitter=_JITTER))


def first_dtype(dtype: str) -> str:
    """Return the dtype of a fit before its solver is known: float32 for "auto", see :func:`wide_where_exact`."""
    if dtype not in ("auto", "float32", "float64"):
        raise SpecError(f"got dtype={dtype!r}; expected one of 'auto', 'float32', 'float64'")
    return "float32" if dtype == "auto" else dtype


def wide_where_exact(settings: FitSettings, n_rows: int | None) -> FitSettings:
    """Return `settings`, whose dtype nobody named, in float64 where up to 5,000 rows are solved exactly.

    Kernel values rounded to float32 bound what an exact solution can resolve: on functions without noise its squared
    error was 3 to 10,000 times that of float64, which takes as long, as the factor is in float64 anyway. Features that
    are rounded to a `precision` keep its dtype.
    """
    few = n_rows is not None and n_rows <= MOST_EXACT
    exact = few and settings.solver.solves_exactly and settings.precision is None
    return replace(settings, dtype="float64") if exact else settings

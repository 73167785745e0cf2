"""The default columns, solver, dtype and metric of a fit."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from daskkern.basis import AllRows, BasisSpec, Landmarks, LocalRows, uses_kernel
from daskkern.errors import SpecError
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import AutoKernel
from daskkern.losses import Squared, parse_loss
from daskkern.solvers import Direct, Solver
from daskkern.training.run.settings import FitSettings

MOST_CENTRES = 10_000
"""Rows up to which all of them are centres, and landmarks of more rows."""
MOST_EXACT = 5000
"""Rows up to which least squares are solved exactly: at most 1.8 times the seconds of ten epochs, and n^2 float64."""
MOST_LEARNED, _MOST_PRODUCTS = 3000, 9e8
"""Rows, and their squared number times the features, up to which the metric of an exact regression is learned.

With 3,000 rows of 100 features, or 300 of 10,000, that takes less than ten seconds of a core.
"""
_MOST_FEATURES = 100
"""Features up to which the metric of a regression to more rows is learned: its sample is then at most 40 MB."""
_CHEAP_CLASSES = 10  # that take no more time than the solves
_MOST_GRADIENTS = 1000  # numbers of the gradients at a row, for which a metric of many rows takes up to 15 s of a core
_LOSSES_OF_CLASSES = ("squared_hinge", "squared", "hinge", "multiclass_hinge")
_LOSSES_OF_NUMBERS = ("squared", "epsilon_insensitive")
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


def usual_loss(solver: Solver[Any], *, classes: bool) -> str:
    """Return the name of the default loss of a solver: of those for the task, the first that it can minimise.

    For classes that is the squared hinge, squared for solvers of ridge regression, hinge for ``svm`` and
    multiclass_hinge for ``amm``; for numbers squared, and epsilon_insensitive for ``svm``.
    """
    usual = _LOSSES_OF_CLASSES if classes else _LOSSES_OF_NUMBERS
    ability = solver.ability
    return next((name for name in usual if ability is None or isinstance(parse_loss(name), ability[0])), usual[0])


def for_few_rows(settings: FitSettings, left_open: Collection[str], n_rows: int | None) -> FitSettings:
    """Return `settings` with what suits a fit to few rows for those of "solver" and "dtype" that are left open.

    `n_rows` is None where the number is not known, or rows will follow; then nothing changes.
    """
    for name, choose in (("solver", _exact_solver), ("dtype", _wide_dtype)):
        settings = choose(settings, n_rows) if name in left_open else settings
    return settings


def with_usual_metric(
    settings: FitSettings, n_rows: int | None, n_features: int | None, n_classes: int | None, *, names_solver: bool
) -> FitSettings:
    """Return `settings` of a fit, which say nothing of the metric of the kernel, with the default for it.

    `n_classes` is None for regressions, and 0 for an unknown number; `names_solver` says whether somebody named the
    solver. Rows and features are None where their numbers are not known, or rows will follow; then nothing changes.
    """
    if n_rows is None or n_features is None:
        return settings
    if n_classes is not None:
        return settings if names_solver else _metric_of_classes(settings, n_rows, n_features, n_classes)
    if n_rows <= MOST_LEARNED:
        return _metric_of_few(settings, n_rows, n_features)
    return settings if names_solver else _metric_of_many(settings, n_features)


def _exact_solver(settings: FitSettings, n_rows: int | None) -> FitSettings:
    """Return `settings`, whose solver nobody named, with the exact one for few rows and the squared loss.

    Up to 5,000 rows with all of them as centres, :class:`daskkern.solvers.Direct` takes about the time of ten epochs,
    which leave the components of small eigenvalues unfitted: on 190 tables of up to 2,600 rows the squared error of
    EigenPro was 2.2 times as large (geometric mean; median 1.03; docs/choose.md). It has no epochs and one rank:
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


def first_dtype(dtype: str) -> str:
    """Return the dtype of a fit before its solver is known: float32 for "auto", see :func:`for_few_rows`."""
    if dtype not in ("auto", "float32", "float64"):
        raise SpecError(f"got dtype={dtype!r}; expected one of 'auto', 'float32', 'float64'")
    return "float32" if dtype == "auto" else dtype


def _wide_dtype(settings: FitSettings, n_rows: int | None) -> FitSettings:
    """Return `settings`, whose dtype nobody named, in float64 where up to 5,000 rows are solved exactly.

    Kernel values rounded to float32 bound what an exact solution can resolve: on functions without noise its squared
    error was 3 to 10,000 times that of float64, which takes as long, as the factor is in float64 anyway. Features that
    are rounded to a `precision` keep its dtype.
    """
    few = n_rows is not None and n_rows <= MOST_EXACT
    exact = few and settings.solver.solves_exactly and settings.precision is None
    return replace(settings, dtype="float64") if exact else settings


def _metric_of_few(settings: FitSettings, n_rows: int, n_features: int) -> FitSettings:
    """Return `settings` of a regression to up to 3,000 rows with the metric of the kernel learned, where it is cheap.

    That is for rows that are solved exactly, with ``kernel="auto"``, and fewer of more than 100 features. On 50 tables
    of up to 2,600 rows of up to 100 features the squared error with a metric was 0.56 times that without (geometric
    mean; more than 5% lower on 13, higher on 1), and on 10 of 111 to 1,538 features 0.36 times (lower on 7, higher on
    1), as held-out rows decide whether one is used.
    """
    cheap = n_rows**2 * n_features <= _MOST_PRODUCTS
    return _with_metric(settings) if cheap and settings.solver.solves_exactly else settings


def _metric_of_classes(settings: FitSettings, n_rows: int, n_features: int, n_classes: int) -> FitSettings:
    """Return `settings` of a fit to classes with the metric of the kernel learned, where that pays.

    That is with ``kernel="auto"`` and any loss of classes, where nobody named a solver or limited memory or time, but
    not for several labels a row, which were not measured:

    * Up to 3,000 rows, and fewer of more than 100 features or 10 classes. On 118 tables the log loss with a metric was
      0.93 times that without (geometric mean; more than 5% lower on 14, higher on 1), in 0.3 s more (median).
    * More than 10,000 rows of up to 100 features, which landmarks represent, and trials no longer take longer. On
      20,000 rows of covtype the error fell from 21.9 to 15.5%, and on 6 other tables nothing was lost, in 8 to 14 s
      more, less than the fit itself takes.

    Between these, 32 tables had 0.995 times the log loss in three times the processor time (docs/choose.md).
    """
    if not n_classes or settings.multilabel or settings.alpha == 0 or _is_limited(settings):
        return settings
    if n_rows <= MOST_LEARNED:
        products = n_rows**2 * n_features * max(1, n_classes / _CHEAP_CLASSES)
        return _with_metric(settings) if products <= _MOST_PRODUCTS else settings
    pays = n_rows > MOST_CENTRES and n_features <= _MOST_FEATURES and n_features * n_classes <= _MOST_GRADIENTS
    return _with_metric(settings) if pays else settings


def _metric_of_many(settings: FitSettings, n_features: int) -> FitSettings:
    """Return `settings` of a regression to more than 3,000 rows with the metric of the kernel learned, by default.

    That is for up to 100 features, the squared loss, and ``kernel="auto"``, where nobody named a solver or limited
    memory or time. Trials on up to 20,000 rows take 5 to 13 s of a core, at most twice what the fit takes. On 31 tables
    of 4,900 to 12,000 rows it gained more than 5% of the squared error on 9, most of it on 8 of these, and lost that on
    none; on QM9's 435 features the sample decided whether it gained or lost (docs/choose.md).
    """
    usual = isinstance(settings.loss, Squared) and settings.alpha != 0
    return _with_metric(settings) if usual and not _is_limited(settings) and n_features <= _MOST_FEATURES else settings


def _is_limited(settings: FitSettings) -> bool:
    return settings.memory_budget is not None or settings.max_seconds is not None


def _with_metric(settings: FitSettings) -> FitSettings:
    open_choice = settings.learn_features is None and isinstance(settings.kernel, AutoKernel)
    learns = open_choice and uses_kernel(settings.basis)
    return replace(settings, learn_features=FeatureLearning()) if learns else settings

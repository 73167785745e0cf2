"""Sampled rows of a search, with folds that are the same for all candidates."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.code_columns import with_codes_unscaled
from daskkern.data.schema.column_scaling import Scaling
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.feeding.targets import learn_targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows
from daskkern.training.setup.penalty import encoded
from daskkern.training.setup.scaling import learn_scaling, with_scaling

_DRAW, _FOLDS = 81, 82
_TARGETS = Fields.X | Fields.y | Fields.weight


@dataclass(frozen=True, eq=False)
class Fold:
    """Numbers of the rows of a sample that are fitted, and of those that are held out, ascending."""

    fitted: IntArray
    held: IntArray


class RecentResults:
    """The last results of functions of a sample, by their arguments; a copy in another process begins without any.

    Parameters
    ----------
    most : int
        Results that are kept.
    """

    def __init__(self, most: int = 256) -> None:
        self.most = most
        self._known: dict[Hashable, Any] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.most,)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> Any:
        """Return the result for these arguments, or None."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: Hashable, result: Any) -> None:
        """Keep a result, in place of the oldest one where there are too many."""
        with self._lock:
            self._known[key] = result
            if len(self._known) > self.most:
                del self._known[next(iter(self._known))]


@dataclass(frozen=True, eq=False)
class SearchSample:
    """Rows in memory as they are, before scaling, with targets.

    Attributes
    ----------
    X : (m, d) float64 array or CSR rows
    y : (m, c) float64 array
        Targets of ridge regression: -1 and 1 for classes, one class against the rest, or standardised numbers.
    raw_y : (m,) int64 or (m, t) float64 array
        Class codes, or numbers in their own units.
    weight : (m,) float64 array or None
        What a row counts; class weights are included.
    info : SourceInfo
        Of the rows that they were drawn from.
    scalings : dict from str or None to Scaling
        What the scalings of candidates are for all rows.
    units : (shift, scale) arrays (t,), or None
        Of the targets of regression: ``y = (raw_y - shift) / scale``.
    seed : int
    scoring : str
        What predictions of held-out rows are compared by, see :data:`daskkern.model_selection.held_out.SCORINGS`.
    recent : RecentResults
        Kernels that were learned from some of the rows: several trials need the same ones.
    """

    X: Array
    y: FloatArray
    raw_y: HostArray
    weight: FloatArray | None
    info: SourceInfo
    scalings: dict[str | None, Scaling]
    units: tuple[FloatArray, FloatArray] | None
    seed: int
    scoring: str = "auto"
    recent: RecentResults = field(init=False, repr=False, default_factory=RecentResults)

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def labels(self) -> IntArray | None:
        """Class codes (m,), or None for regression."""
        return None if self.info.classes is None else self.raw_y.ravel().astype(np.int64)

    @property
    def shares(self) -> FloatArray:
        """The weights (m,), with the sum 1."""
        counts = np.ones(self.n_rows) if self.weight is None else self.weight
        return counts / counts.sum()

    def informative(self, m: int) -> int:
        """Return how many of m rows like these distinguish models.

        Where one class has most of the rows, errors are made with the others': two rows count for each of those.
        """
        if self.labels is None:
            return m
        others = 1 - float(np.bincount(self.labels, self.shares).max())
        return min(m, round(2 * others * m))

    def scaling(self, scale: str | None, codes: tuple[int, ...] = ()) -> Scaling:
        """Return the scaling of a fit, which leaves columns of codes alone."""
        return with_codes_unscaled(self.scalings[scale], codes)

    def scaled(self, scale: str | None, codes: tuple[int, ...] = ()) -> Array:
        """Return the features (m, d) as a fit with this scaling, and these columns of codes, sees them."""
        return self.scaling(scale, codes).apply(self.X, np.float64)

    def source(self, at: IntArray) -> ArraySource:
        """Return some of the rows as a source to fit to."""
        X: Any = self.X[at]
        n_stored = None if self.info.n_stored is None else int(X.nnz)
        info = replace(self.info, n_rows=len(at), n_stored=n_stored)
        y = self.raw_y[at]
        return ArraySource(X, y, None if self.weight is None else self.weight[at], info)

    def folds(self, n_folds: int, held_out: float, repeat: int = 0) -> list[Fold]:
        """Return `n_folds` folds stratified by class; one fold holds out a share `held_out` of the rows."""
        order = generator(self.seed, _FOLDS, repeat).permutation(self.n_rows)
        if self.labels is not None:
            order = order[np.argsort(self.labels[order], kind="stable")]
        if n_folds > 1:
            parts = [order[k::n_folds] for k in range(n_folds)]
        else:
            step = max(2, round(1 / held_out))
            parts = [order[step // 2 :: step]]
        everything = np.arange(self.n_rows)
        return [Fold(np.setdiff1d(everything, part), np.sort(part)) for part in parts]


def draw_sample(
    source: RowSource, settings: FitSettings, m: int, scales: tuple[str | None, ...], scoring: str = "auto"
) -> SearchSample:
    """Return m random rows of `source`, the first ones of a larger sample of the same seed but for rare heavy rows.

    Raises
    ------
    DataError
        For rows that a fit would refuse.
    """
    scalings = {scale: learn_scaling(source, replace(settings, scale=scale)) for scale in scales}
    rows = with_scaling(source, Scaling()).open("float64")
    targets = learn_targets(rows, settings)
    _, block, weight = ChoiceRows(rows, targets, settings.seed).drawn(min(m, rows.n_rows), _DRAW, _TARGETS)
    assert block.X is not None
    assert block.y is not None
    units = None if targets.shift is None or targets.scale is None else (targets.shift, targets.scale)
    y = encoded(targets, block.y)
    return SearchSample(block.X, y, block.y, weight, source.info, scalings, units, settings.seed, scoring)

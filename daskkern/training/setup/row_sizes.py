"""The norms of rows, and how far those of a batch exceed the rows on which steps were measured.

Steps follow from beta, the largest ``w k_P(x, x)`` of a few thousand rows, and from l_P, the largest eigenvalue of
their covariance. Rare rows that are much longer or weigh much more are left out there: measured, they would make every
step small. With c the largest ``w k(x, x)`` of the measured rows, a row of a batch is one that is like them, of weight
at most ``c / k(x, x)``, and the rest of its weight. Since ``k_P(x, x) <= k(x, x)``, these rests add at most

    sum_i max(0, w_i k(x_i, x_i) - c)

to m times the largest eigenvalue of the batch's covariance (Weyl's inequality): the *excess squared norm* of the batch,
in code `excess`, which its step allows for.
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.data.rows.csr import FeatureRows
from daskkern.kernels import Kernel
from daskkern.kernels.norms import squared_norms
from daskkern.training.run.settings import FitSettings

HEAVY = 16.0
"""How many times the mean a row is that is heavy."""
_RARE = 1 / 250
_FEW = 4
_MOST = 64


@dataclass(frozen=True, eq=False)
class RowSizes:
    """The sizes ``k(x, x)`` of rows, with random features those of the kernel that they stand for.

    Attributes
    ----------
    kernel : Kernel or None
        None for linear models, also locally linear ones: sizes are ``|x|^2 + 1``, or at most that.
    same : float or None
        The size of all rows, for a kernel whose rows are equally long.
    most : float
        Largest size of the measured rows, times what they count.
    """

    kernel: Kernel | None
    same: float | None
    most: float

    @classmethod
    def measured(cls, settings: FitSettings, X: FeatureRows, weight: HostArray | None) -> tuple["RowSizes", IntArray]:
        """Return the sizes of rows X (m, d) that count `weight` (m,), and which of the rows to measure steps on.

        That is all but those that are rare and far larger than the others.
        """
        kernel = None if settings.basis.of_features else settings.kernel
        if not X.shape[0]:
            return cls(kernel, None, np.inf), np.zeros(0, np.int64)
        sizes = _sizes(kernel, X)
        counted = sizes if weight is None else sizes * weight
        rest = np.sort(counted)[: max(1, len(counted) - int(_RARE * len(counted)))]
        kept = np.flatnonzero(counted <= max(HEAVY * float(rest.mean()), float(rest[-1])))
        same = float(sizes[0]) if kernel is not None and sizes.min() == sizes.max() else None
        return cls(kernel, same, float(counted[kept].max())), kept

    def covering(self, X: FeatureRows, weight: HostArray | None) -> "RowSizes":
        """Return the same with `most` at least that of rows X (m, d), but for those far larger than their mean.

        Steps of unlike sizes pull a model towards the rows of the batches with the longer ones, so that rows which
        shape the preconditioner, and occur about as often as others, are not counted as beyond.
        """
        counted = _sizes(self.kernel, X) if weight is None else _sizes(self.kernel, X) * weight
        usual = counted[counted <= HEAVY * counted.mean()] if counted.size else counted
        return replace(self, most=max(self.most, float(usual.max(initial=0.0))))

    def excess(self, X: FeatureRows | None, weight: HostArray | None) -> FloatArray | None:
        """Return the excess squared norms of rows of weights (m, 1) beyond `most`, (m,), or empty where none has one.

        None where that is not known, because the features are not there.
        """
        if self.same is not None:
            counted: FloatArray = np.full(1, self.same)
        elif X is not None:
            counted = _sizes(self.kernel, X)
        else:
            return None
        if weight is not None:
            counted = counted * weight[:, 0].astype(np.float64)
        if bool((counted <= self.most).all()):
            return np.zeros(0)
        return np.nan_to_num(np.maximum(counted - self.most, 0.0), nan=np.inf, posinf=np.inf)


class Extremes:
    """The rows of a run that go furthest beyond those that steps are measured on, and what batches have of them."""

    def __init__(self, sizes: RowSizes | None) -> None:
        self._sizes = sizes
        self._rows: dict[int, float] = {}
        self._batches: dict[int, float] = {}

    @property
    def rows(self) -> IntArray:
        """The numbers of the rows observed so far, ascending; at most 64."""
        return np.array(sorted(self._rows), np.int64)

    def each(self, X: FeatureRows | None, weight: HostArray | None) -> FloatArray | None:
        """Return the excess of each of these rows, (m,), or empty where none has one; None where it is not known."""
        return None if self._sizes is None else self._sizes.excess(X, weight)

    def observe(self, index: int, found: FloatArray | None, positions: IntArray | None) -> float:
        """Return the excess of batch number `index`, of whose rows `found` is that of each.

        `positions` is None where each epoch has other rows.
        """
        if found is None:  # the kernel block is kept, and the rows were here before
            return self._batches.get(index, 0.0)
        if positions is not None and found.any():
            self._batches[index] = float(found.sum())
            beyond = np.flatnonzero(found)
            self._rows |= dict(zip(positions[beyond].tolist(), found[beyond].tolist(), strict=True))
            self._rows = dict(heapq.nlargest(_MOST, self._rows.items(), key=lambda row: row[1]))
        return float(found.sum())


def clipped_weights(weight: HostArray | None) -> HostArray | None:
    """Return the weights (s,) with which rows shape a preconditioner: those of a few heavy rows are cut off.

    Any weights make one that is valid; these keep its directions from being those of single rows.
    """
    if weight is None:
        return None
    most = HEAVY * float(weight.mean())
    return np.minimum(weight, most) if (weight > most).sum() <= max(_FEW, _RARE * weight.size) else weight


def _sizes(kernel: Kernel | None, X: FeatureRows) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        values = squared_norms(X) + 1 if kernel is None else kernel.diagonal(X)
        return np.asarray(to_host(values), np.float64)

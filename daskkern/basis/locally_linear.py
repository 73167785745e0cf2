"""Linear models around anchors, weighted for each row by its local code."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.backend.namespace import is_sparse
from daskkern.basis.base import BasisSpec, ColumnRequest, ColumnSet
from daskkern.data.rows.rows import Rows
from daskkern.errors import SpecError
from daskkern.kernels import Kernel, LocalFeatures
from daskkern.landmarks import SELECTORS, LandmarkSelector, parse_selector


@dataclass(frozen=True)
class LocallyLinear(BasisSpec):
    """A linear model around each of n anchors: ``f(x) = sum_a gamma_a(x) (w_a . x + b_a)``. The kernel is not used.

    The weights gamma of the `nearest` anchors are in the proportions of their inverse distances, and their sum is 1
    (Ladicky and Torr, "Locally linear support vector machines", ICML 2011). With one anchor it is a linear model. There
    are n (d + 1) columns. All their coefficients are penalised, those of the constants too.

    Parameters
    ----------
    n : int
        Number of anchors; at most the number of training rows is used.
    nearest : int
        Anchors that count at a row; all of them where there are fewer.
    selector : str or LandmarkSelector
        How anchors are chosen: a landmark rule that needs no kernel.
    """

    name: ClassVar[str] = "locally linear"
    is_explicit: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False
    of_features: ClassVar[bool] = True

    n: int = 100
    nearest: int = 8
    selector: str | LandmarkSelector = "k_means"

    def __post_init__(self) -> None:
        for number, what in ((self.n, "anchors"), (self.nearest, "nearest anchors")):
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
                raise SpecError(f"got {number!r} {what}; give a whole number of at least 1")
        if parse_selector(self.selector).uses_kernel:
            able = [name for name, rule in SELECTORS.items() if not rule.uses_kernel]
            raise SpecError(
                f"got selector={self.selector!r} for anchors, which needs a kernel; choose one of {', '.join(able)}"
            )

    @property
    def uses_kernel(self) -> bool:
        return False

    @property
    def selection(self) -> LandmarkSelector | None:
        return parse_selector(self.selector)

    @property
    def n_landmarks(self) -> int:
        return self.n

    def resized(self, n: int) -> BasisSpec:
        return replace(self, n=n)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return min(n_rows, self.n) * (n_features + 1)

    def table_bytes(self, kernel: Kernel, n_features: int, seed: int) -> int:
        del kernel, seed
        return 8 * self.n * n_features

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        chosen: Any = parse_selector(self.selector).select(rows, request.kernel, self.n, request.seed).points
        anchors = chosen.toarray() if is_sparse(chosen) else chosen
        kernel = LocalFeatures(anchors, min(self.nearest, len(anchors)))
        return ColumnSet.of(kernel, kernel.numbers.astype(request.dtype))

"""Candidates of a search: kernels, compared by ridge regression on sampled rows, and whole fits."""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.schema.column_scaling import Scaling
from daskkern.kernels import (
    AdditiveLaplacian,
    DifferenceKernel,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    Matern,
    RadialKernel,
    ScaledDistanceKernel,
)
from daskkern.kernels.functions.differences.categories import LARGEST_CODE
from daskkern.model_selection.relevance import LEAST_FEATURES
from daskkern.training.run.settings import FitSettings

MOST_L1_FEATURES, MOST_WARPED = 1024, 256
"""Most features of rows for which kernels of single differences are candidates, and warps: of wider rows their values
take long."""
_LEAST_ADDITIVE = 3
"""Features from which a model of sums over pairs of them is not any model."""
MOST_FULL_FEATURES = 512
"""Features up to which directions are learned in a search."""
_FEWEST_CODES, _MOST_CODES, _ROWS_PER_CODE = 3, 100, 10  # two values are as far apart either way
_KERNELS: dict[str, tuple[ScaledDistanceKernel, float]] = {
    "laplacian_l1": (L1Laplacian("median"), 1.0),
    "laplacian": (Laplacian("median"), 1.0),
    "additive_laplacian": (AdditiveLaplacian("median", degree=2), 1.0),
    "matern32": (Matern("median", nu=1.5), 1.0),
    "gaussian": (Gaussian("median"), 0.7),
}
"""Kernels, and the multiples of the median distance that are tried first."""
_METRICS = {
    "none": "",
    "diagonal": ", weights learned",
    "relevance": ", weights by relevance",
    "full": ", directions learned",
    "warped": ", warped",
}


@dataclass(frozen=True)
class KernelCandidate:
    """A kernel with its scaling, as ridge regression on sampled rows compares them.

    Attributes
    ----------
    kernel : str
        "laplacian_l1", "laplacian", "additive_laplacian", "matern32" or "gaussian".
    times : float
        The length scale as a multiple of the median distance.
    scale : str or None
        As of a fit: "affine", "arcsinh", "ranks", "common", or None where the rows were scaled before.
    metric : "none", "diagonal", "relevance", "full" or "warped"
        What of the metric is learned from the rows; with "relevance" weights as well, which start from
        :mod:`daskkern.model_selection.relevance`, with "warped" maps of single features
        (:mod:`daskkern.model_selection.warped_features`).
    categories : tuple of int
        Columns that hold codes of categories.
    """

    kernel: str
    times: float
    scale: str | None
    metric: str = "none"
    categories: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The candidate in a few words, such as "laplacian, 0.5 x median, arcsinh, weights learned"."""
        codes = f", {len(self.categories)} categorical" if self.categories else ""
        return f"{self.kernel}, {self.times:g} x median, {self.scale or 'as ingested'}{codes}{_METRICS[self.metric]}"

    def resolved(self, X: Array) -> ScaledDistanceKernel:
        """Return the kernel, without a learned metric, with its length scale as a number for rows X (m, d), scaled.

        Raises
        ------
        DataError
            When all rows are equal.
        """
        found = _KERNELS[self.kernel][0].with_categories(self.categories).resolve(X)
        assert isinstance(found, ScaledDistanceKernel)
        assert isinstance(found.length_scale, float)
        return replace(found, length_scale=self.times * found.length_scale)


@dataclass(frozen=True, eq=False)
class ScaledKernel:
    """A kernel, and the scaling of the rows that it is for.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
    scale : str, Scaling or None
        As of a fit: the candidate's, or with warped features.
    """

    kernel: ScaledDistanceKernel
    scale: str | Scaling | None

    @property
    def n_numbers(self) -> int:
        """Numbers of the length scale, and of warps."""
        tables = self.scale.ranks if isinstance(self.scale, Scaling) else ()
        return int(np.size(self.kernel.length_scale)) + sum(len(table.values) for table in tables)


@dataclass(frozen=True)
class LearnedMetric:
    """How the metric of a kernel was learned, so that each fold of a trial learns it from its own rows.

    Attributes
    ----------
    kernel : KernelCandidate
    alphas : tuple of float
        The penalties of the rounds.
    n_rows : int
        Rows of a sample that it is learned from, the first ones.
    """

    kernel: KernelCandidate
    alphas: tuple[float, ...]
    n_rows: int


@dataclass(frozen=True, eq=False)
class FitCandidate:
    """Settings of a fit, which a trial fits to some sampled rows and scores on others.

    Another kind of model becomes a candidate by its settings alone.

    Attributes
    ----------
    name : str
    settings : FitSettings
        Of the fit to all rows.
    sampled : FitSettings
        Of a fit to sampled rows: mostly the same, but a penalty that was chosen for all rows is larger there.
    metric : LearnedMetric or None
        Of its kernel: that of `sampled` has seen all sampled rows, and a trial has to hide some.
    """

    name: str
    settings: FitSettings
    sampled: FitSettings
    metric: LearnedMetric | None = None


def first_candidates(
    scales: tuple[str | None, ...], X: Array, categories: tuple[int, ...] = ()
) -> list[KernelCandidate]:
    """Return the kernels that are compared first for rows like X (m, d), with each of `scales`.

    With `categories`, columns of codes, those that have categories. Where none are known, but some columns may be
    codes, the kernels of single differences are compared with these as categories as well.
    """
    left_out = set() if _suits_l1(X) or categories else {"laplacian_l1", "additive_laplacian"}
    if categories:
        left_out = {name for name, (kernel, _) in _KERNELS.items() if not isinstance(kernel, DifferenceKernel)}
    left_out |= {"additive_laplacian"} if X.shape[1] < _LEAST_ADDITIVE else set()
    names = [name for name in _KERNELS if name not in left_out]
    found = [
        KernelCandidate(name, _KERNELS[name][1], scale, categories=categories) for scale in scales for name in names
    ]
    codes = () if categories or scales[0] is None or is_sparse(X) else likely_codes(X)
    coded = [replace(one, categories=codes) for one in found if one.scale == scales[0] and _takes_categories(one)]
    return found + (coded if codes else [])


def likely_codes(X: HostArray) -> tuple[int, ...]:
    """Return the columns of rows X (m, d) that may be codes of categories: few whole numbers, which repeat."""
    m, found = len(X), []
    for column in range(X.shape[1]):
        values = np.unique(X[:, column])
        few = _FEWEST_CODES <= len(values) <= min(_MOST_CODES, m / _ROWS_PER_CODE)
        if few and np.abs(values).max() <= LARGEST_CODE and bool((values == np.round(values)).all()):
            found.append(column)
    return tuple(found)


def neighbours(candidate: KernelCandidate) -> list[KernelCandidate]:
    """Return the candidate with half and with twice the length scale."""
    return [replace(candidate, times=candidate.times * factor) for factor in (0.5, 2.0)]


def with_metrics(candidate: KernelCandidate, X: Array) -> list[KernelCandidate]:
    """Return the candidate with learned weights of the features, and with directions where it can have them.

    Weights start from the relevance of the features, too, where these are dense and many. Not of the
    additive kernel, whose gradients take as long as the rest of the search.
    """
    if X.shape[1] < 2 or candidate.kernel == "additive_laplacian":
        return []
    radial = isinstance(_KERNELS[candidate.kernel][0], RadialKernel)
    takes_full = radial and not is_sparse(X) and X.shape[1] <= MOST_FULL_FEATURES
    takes_relevance = not is_sparse(X) and X.shape[1] >= LEAST_FEATURES
    metrics = ["diagonal", *["relevance"] * takes_relevance, *["full"] * takes_full]
    return [replace(candidate, metric=metric) for metric in metrics]


def warped(candidate: KernelCandidate, X: Array) -> list[KernelCandidate]:
    """Return the candidate with warped features, for dense rows of not too many; not of the additive kernel."""
    takes_warps = _suits_l1(X) and X.shape[1] <= MOST_WARPED and candidate.kernel != "additive_laplacian"
    return [replace(candidate, metric="warped")] if takes_warps else []


def _takes_categories(candidate: KernelCandidate) -> bool:
    return isinstance(_KERNELS[candidate.kernel][0], DifferenceKernel)


def _suits_l1(X: Array) -> bool:
    return not is_sparse(X) and X.shape[1] <= MOST_L1_FEATURES


def named_fit(
    kernel: Kernel,
    words: str,
    base: FitSettings,
    sampled: dict[str, object] | None = None,
    metric: LearnedMetric | None = None,
    **changes: object,
) -> FitCandidate:
    """Return the fit of `base` with a kernel and other `changes`; a fit to sampled rows has those of `sampled` too."""
    settings = replace(base, kernel=kernel, **changes)  # type: ignore[arg-type]
    return FitCandidate(words, settings, replace(settings, **(sampled or {})), metric)  # type: ignore[arg-type]


def metric_of(kernel: KernelCandidate, alphas: tuple[float, ...], n_rows: int) -> LearnedMetric | None:
    """Return how the metric of a kernel was learned from `n_rows` sampled rows; None where it has none."""
    return None if kernel.metric == "none" else LearnedMetric(kernel, alphas, n_rows)

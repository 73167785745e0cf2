"""The maximum mean discrepancy of two samples, with a permutation test."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec
from daskkern.data.rows.rows import Rows
from daskkern.estimators.parameters import active_client
from daskkern.kernels import Kernel
from daskkern.unsupervised.base import UnsupervisedEstimator, whole
from daskkern.unsupervised.feature_map import FeatureMap, set_up
from daskkern.unsupervised.passes import Totals, row_passes
from daskkern.unsupervised.pooled import PooledSource, pooled_encoding

MOST_GROUPS = 2000
"""Groups of rows that are exchanged: single rows, up to that number of them."""
_FEWEST = 32  # groups of the smaller sample, unless it has fewer rows
_AT_ONCE = 256
_DRAW = 94


@dataclass(frozen=True, eq=False)
class MMDTest:
    """The result of :func:`mmd_test`.

    Attributes
    ----------
    p_value : float
        Share of the permutations, the identity among them, whose statistic is at least that of the samples.
    statistic : float
        ``|mean phi(x) - mean phi(y)|^2``: MMD squared, the biased estimate, which is never negative.
    unbiased : float
        The unbiased estimate of MMD squared, in the features of the basis.
    permuted : (n_permutations,) float64
        The statistic after each permutation.
    n_groups : int
        Groups of rows that were exchanged.
    group_rows : int
        Rows of a group.
    kernel : Kernel
        With the parameters that were estimated from the pooled rows.
    """

    p_value: float
    statistic: float
    unbiased: float
    permuted: FloatArray
    n_groups: int
    group_rows: int
    kernel: Kernel


class _TwoSamples(UnsupervisedEstimator):
    """The settings of a test."""

    def __init__(
        self, kernel: Any, basis: Any, scale: str | None, random_state: Any, dtype: str, device: str, client: Any
    ) -> None:
        self.kernel, self.basis, self.scale, self.random_state = kernel, basis, scale, random_state
        self.dtype, self.device, self.client = dtype, device, client


def mmd_test(
    X: Any,
    Y: Any,
    *,
    kernel: Kernel | str = "gaussian:median",
    n_permutations: int = 999,
    basis: BasisSpec | str = "auto",
    scale: str | None = "auto",
    random_state: Any = 0,
    dtype: str = "float64",
    device: str = "auto",
    client: Any = None,
) -> MMDTest:
    """Test whether rows `X` and rows `Y` are drawn from one distribution, by the distance of their kernel means.

    The test has its level whatever the number of rows, when the rows of both samples are independent: landmarks, length
    scale and scaling are chosen from the pooled rows without regard to which sample they are in, and the statistic is
    compared with those after random permutations. Of more than 2,000 rows, groups of successive rows are exchanged in
    place of single ones, so that one pass over the rows gives all permutations.

    Parameters
    ----------
    X, Y : path, URL, Zarr group, dask array (n, d) or array-like (n, d)
        Rows; of stores and dask arrays a chunk at a time is read. Weights of a store are not used. Categories in two
        data frames are those of either.
    kernel : Kernel, str or function of two tables of rows
        "median" is the median distance of pooled rows.
    n_permutations : int
        Permutations that the p-value is found from.
    basis : Landmarks, AllRows, NystromFeatures, RandomFeatures or "auto"
        "auto" takes all rows up to 2,000, where the statistic is that of the kernel matrix, and 1,000 landmarks for
        more rows. Stratified landmarks would know the samples only by targets of stores, which are not used.
    scale
        As for :class:`daskkern.KernelPCA`.
    random_state
        As for :class:`daskkern.KernelPCA`.
    dtype
        As for :class:`daskkern.KernelPCA`.
    device
        As for :class:`daskkern.KernelPCA`.
    client
        As for :class:`daskkern.KernelPCA`.

    Raises
    ------
    daskkern.errors.DaskkernError
        Also for samples with other columns or scalings.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schoelkopf and Smola, "A kernel two-sample test", JMLR 2012, equations 3 and 5.
    Domingo-Enrich, Dwivedi and Mackey, "Compress then test: powerful kernel testing in near-linear time", AISTATS 2023,
    section 3: permutations of groups.
    """
    count = whole("n_permutations", n_permutations)
    settings_of = _TwoSamples(kernel, basis, scale, random_state, dtype, device, client)
    encoding = pooled_encoding(X, Y)
    first, second = (settings_of._source(rows, None, encoding=encoding) for rows in (X, Y))
    source = PooledSource.of(first, second)
    n, m = first.info.n_rows, second.info.n_rows
    settings = settings_of._settings_for(source)
    groups = _Groups.of(n, m)
    with row_passes(source, dtype, active_client(client)) as passes:
        found = passes.once(partial(set_up, settings=settings))
        sums, squares = passes.scaled(found.scaling).totals(_GroupSums(found.features, groups))
    rest, total = sums[groups.count], sums.sum(axis=0)
    own = sums[: groups.first].sum(axis=0) + rest
    statistic = float(_distances(own[None], total, n, m)[0])
    permuted = _permuted_distances(sums, groups, count, settings.seed)
    at_least = int((permuted >= statistic * (1 - 1e-12)).sum())
    other = total - own
    within = (own @ own - squares[0]) / (n * (n - 1)) + (other @ other - squares[1]) / (m * (m - 1))
    return MMDTest(
        (1 + at_least) / (1 + count), statistic, float(within - 2 * own @ other / (n * m)), permuted, groups.count,
        groups.rows, found.settings.kernel,
    )  # fmt: skip


def _permuted_distances(sums: FloatArray, groups: "_Groups", count: int, seed: int) -> FloatArray:
    """Return squared distances of means (count,) after random exchanges of groups, from their sums (groups + 2, r)."""
    permuted, rng = np.empty(count), generator(seed, _DRAW)
    rest, total = sums[groups.count], sums.sum(axis=0)
    for part in slices(count, _AT_ONCE):
        chosen = np.zeros((part.stop - part.start, groups.count))
        order = np.argsort(rng.random(chosen.shape), axis=1)[:, : groups.first]
        np.put_along_axis(chosen, order, 1.0, axis=1)
        permuted[part] = _distances(chosen @ sums[: groups.count] + rest, total, groups.n, groups.m)
    return permuted


def _distances(own: FloatArray, total: FloatArray, n: int, m: int) -> FloatArray:
    """Return squared distances of means (b,) from the sums (b, r) of the first sample, and that of all rows (r,)."""
    gaps = own * (1 / n + 1 / m) - total / m
    found: FloatArray = (gaps * gaps).sum(axis=1)
    return found


@dataclass(frozen=True)
class _Groups:
    """Groups of `rows` successive rows: `first` in the first sample of n rows, `second` in the second one of m.

    Rows after the last group of a sample stay in it.
    """

    n: int
    m: int
    rows: int
    first: int
    second: int

    @classmethod
    def of(cls, n: int, m: int) -> "_Groups":
        rows = max(1, min(-(-(n + m) // MOST_GROUPS), min(n, m) // _FEWEST))
        smaller = min(n, m) // rows
        most = max(MOST_GROUPS - smaller, smaller)
        return cls(n, m, rows, min(n // rows, most), min(m // rows, most))

    @property
    def count(self) -> int:
        return self.first + self.second

    def numbers(self, start: int, stop: int) -> HostArray:
        """Return the number of the group of each pooled row: `count` and one more for rows that stay in a sample."""
        at = np.arange(start, stop)
        inside = at < self.n
        of_first, of_second = at // self.rows, self.first + (at - self.n) // self.rows
        found = np.where(inside, of_first, of_second)
        stays = np.where(inside, of_first >= self.first, of_second >= self.count)
        return np.where(stays, np.where(inside, self.count, self.count + 1), found)


@dataclass(frozen=True, eq=False)
class _GroupSums:
    """Sums over rows: of phi for each group (groups + 2, r), and of ``|phi|^2`` for each sample (2,)."""

    features: FeatureMap
    groups: _Groups

    def __call__(self, rows: Rows, part: slice) -> Totals:
        sums, squares = np.zeros((self.groups.count + 2, self.features.n_features)), np.zeros(2)
        start = part.start
        for block, _, _ in self.features.blocks(rows, part):
            phi = to_host(block).astype(np.float64)
            stop = start + phi.shape[0]
            numbers = self.groups.numbers(start, stop)
            edges = np.flatnonzero(np.diff(numbers, prepend=-1))
            np.add.at(sums, numbers[edges], np.add.reduceat(phi, edges, axis=0))
            each, cut = (phi * phi).sum(axis=1), min(max(self.groups.n - start, 0), phi.shape[0])
            squares += np.array([each[:cut].sum(), each[cut:].sum()])
            start = stop
        return sums, squares

"""k-means of embedded rows larger than memory: several starts on a sample, then passes over all rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.random import generator
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.training.feeding.row_source import RowSource
from daskkern.unsupervised.feature_map import FeatureMap
from daskkern.unsupervised.passes import RowPasses, Totals

SAMPLE_BYTES = 1 << 28
"""Of the embedded rows of the sample, float64: all rows are the sample up to that."""
_DRAW = 91


@dataclass(frozen=True, eq=False)
class Embedding:
    """The features of rows, or ``V^T phi(x) / max(s^T phi(x), k(x, x))``.

    Attributes
    ----------
    features : FeatureMap
    V : (r, q) array or None
        None for the features themselves.
    s : (r,) array or None
    """

    features: FeatureMap
    V: FloatArray | None = None
    s: FloatArray | None = None

    @property
    def width(self) -> int:
        """Number of coordinates q."""
        return self.features.n_features if self.V is None else self.V.shape[1]

    def blocks(self, rows: Rows, part: slice) -> Iterator[tuple[Array, HostArray | None]]:
        """Yield the embedded rows (m, q) of blocks, float64, and their weights (m,) or None."""
        for phi, X, weight in self.features.blocks(rows, part):
            phi = phi.astype(np.float64, copy=False)
            if self.V is None or self.s is None:
                yield phi, weight
                continue
            xp = namespace_of(phi)
            degree = xp.maximum(phi @ xp.asarray(self.s), xp.asarray(self.features.kernel.diagonal(X)))
            yield (phi @ xp.asarray(self.V)) / degree[:, None], weight


@dataclass(frozen=True, eq=False)
class Clusters:
    """Centres (k, q) of clusters, the sum of squared distances to the nearest one, and the number of iterations."""

    centres: FloatArray
    inertia: float
    n_iter: int


@dataclass(frozen=True)
class KMeansSettings:
    """Settings of k-means, as :class:`sklearn.cluster.KMeans` means them; `seed` is an int."""

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float
    seed: int


def k_means(passes: RowPasses, embedding: Embedding, settings: KMeansSettings) -> Clusters:
    """Return the clusters of the embedded rows.

    The sample is clustered by scikit-learn's KMeans with `n_init` starts of k-means++. When it is not all rows, Lloyd's
    iterations over all rows follow, until they lower the inertia by less than the share `tol`.

    Raises
    ------
    DataError
        When there are fewer rows than clusters.
    """
    n = passes.source.info.n_rows
    if n < settings.n_clusters:
        raise DataError(f"got n_clusters={settings.n_clusters} for n_samples={n} rows; give at most one a row")
    most = max(SAMPLE_BYTES // (8 * embedding.width), settings.n_clusters)
    found = passes.once(
        partial(_sample_clusters, embedding=embedding, dtype=passes.dtype, settings=settings, most=most)
    )
    if n <= most:
        return found
    centres, previous, done = found.centres, np.inf, 0
    while done < settings.max_iter:
        done += 1
        weight, total, inertia = passes.totals(_LloydSums(embedding, centres))
        moved = total / np.where(weight > 0, weight, 1)[:, None]
        centres = np.where(weight[:, None] > 0, moved, centres)
        if previous - inertia[0] <= settings.tol * inertia[0]:
            break
        previous = float(inertia[0])
    return Clusters(centres, float(inertia[0]), found.n_iter + done)


def nearest(Y: Array, centres: Array) -> tuple[Array, Array]:
    """Return the numbers (m,) of the nearest centres, and their squared distances less ``|y|^2``."""
    distances = (centres * centres).sum(axis=1) - 2 * (Y @ centres.T)
    return distances.argmin(axis=1), distances.min(axis=1)


def _sample_clusters(
    source: RowSource, embedding: Embedding, dtype: str, settings: KMeansSettings, most: int
) -> Clusters:
    rows = source.open(dtype)
    if rows.n_rows > most:
        drawn = np.sort(generator(settings.seed, _DRAW).choice(rows.n_rows, most, replace=False))
        block = take(rows, drawn, Fields.X | Fields.weight)
        assert block.X is not None
        rows = ArrayRows(block.X, weight=block.weight, dtype=dtype)
    Y = np.empty((rows.n_rows, embedding.width))
    weights = np.ones(rows.n_rows) if rows.has_weight else None
    start = 0
    for embedded, weight in embedding.blocks(rows, slice(0, rows.n_rows)):
        stop = start + embedded.shape[0]
        Y[start:stop] = to_host(embedded)
        if weights is not None:
            weights[start:stop] = weight
        start = stop
    if weights is not None and not weights.sum() > 0:
        raise DataError("the sample weights add up to 0; give some rows a positive weight")
    model: Any = KMeans(
        settings.n_clusters, n_init=settings.n_init, max_iter=settings.max_iter, tol=settings.tol,
        random_state=settings.seed % (1 << 32),
    )  # fmt: skip
    model.fit(Y, sample_weight=weights)
    return Clusters(model.cluster_centers_, float(model.inertia_), int(model.n_iter_))


@dataclass(frozen=True, eq=False)
class _LloydSums:
    """Sums over rows for each centre: weights (k,), weighted embedded rows (k, q), and the inertia (1,)."""

    embedding: Embedding
    centres: FloatArray

    def __call__(self, rows: Rows, part: slice) -> Totals:
        k = self.centres.shape[0]
        weights, total, inertia = np.zeros(k), np.zeros(self.centres.shape), 0.0
        for Y, weight in self.embedding.blocks(rows, part):
            xp = namespace_of(Y)
            w = xp.ones(Y.shape[0]) if weight is None else xp.asarray(weight)
            codes, gaps = nearest(Y, xp.asarray(self.centres))
            members = (codes[None, :] == xp.arange(k)[:, None]) * w
            weights += to_host(members.sum(axis=1))
            total += to_host(members @ Y)
            inertia += float(w @ ((Y * Y).sum(axis=1) + gaps))
        return weights, total, np.array([inertia])


@dataclass(frozen=True, eq=False)
class NearestCentres:
    """The cluster of each row (m,) int32."""

    embedding: Embedding
    centres: FloatArray

    def __call__(self, rows: Rows, part: slice) -> HostArray:
        found = []
        for Y, _ in self.embedding.blocks(rows, part):
            found.append(to_host(nearest(Y, namespace_of(Y).asarray(self.centres))[0]).astype(np.int32))
        return np.concatenate(found)

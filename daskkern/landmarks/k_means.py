"""Cluster centres as landmarks."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.backend.random import generator
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.landmarks.base import (
    LandmarkSelector,
    LandmarkSet,
    check_rows_each,
    first_occurrences,
    sample_bytes,
    sampled_rows,
)

_STREAM = 33
_SAMPLED = 20_000


@dataclass(frozen=True)
class KMeans(LandmarkSelector):
    """Centres of mini-batch k-means on a random sample of the rows, in random order. They are not rows themselves.

    Memory: the sample, of `rows_each` rows a landmark and at least 20,000.

    Parameters
    ----------
    rows_each : int
        Sampled rows for each landmark.

    References
    ----------
    Zhang, Tsang and Kwok, "Improved Nystrom low-rank approximation and error analysis", ICML 2008; Zhang, Lan, Wang and
    Moerchen, "Scaling up kernel SVM on limited resources: a low-rank linearization approach" (LLSVM), AISTATS 2012.
    """

    name: ClassVar[str] = "k_means"
    uses_kernel: ClassVar[bool] = False

    rows_each: int = 20

    def __post_init__(self) -> None:
        check_rows_each(self.rows_each, self.name)

    def working_bytes(self, n_rows: int, n: int, d: int, itemsize: int) -> int:
        batch = max(1024, 2 * n)
        return sample_bytes(n_rows, self._size(n), d, itemsize) + (batch * d + 4 * n * d) * itemsize + 64 * batch

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        from sklearn.cluster import MiniBatchKMeans  # takes longer to import than all else that a worker needs

        del kernel
        rng = generator(seed, _STREAM)
        sample, _ = sampled_rows(rows, self._size(n), rng)
        k = min(n, sample.shape[0])
        clusters = MiniBatchKMeans(k, batch_size=max(1024, 2 * k), n_init=1, random_state=int(rng.integers(1 << 31)))
        centres = clusters.fit(sample).cluster_centers_[rng.permutation(k)].astype(rows.dtype)
        return LandmarkSet(centres[first_occurrences(centres)], None, None)

    def _size(self, n: int) -> int:
        return max(_SAMPLED, self.rows_each * n)

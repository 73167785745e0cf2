"""Ridge models for many length scales and penalties at once, which read rows and compute distances only once.

For each length scale the normal equations ``(K_XZ^T W K_XZ / n + alpha K_ZZ) a = K_XZ^T W y / n`` are summed over the
rows; each distance tile serves all of them. With ``K_ZZ = L L^T`` and ``L^-1 K_XZ^T W K_XZ L^-T / n = U diag(l) U^T``,
``a = L^-T U (U^T L^-1 K_XZ^T W y / n) / (l + alpha)``: further penalties cost a product each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.tiles import for_each, slices
from daskkern.data.rows.rows import Rows, row_fields
from daskkern.errors import DataError
from daskkern.kernels import Kernel, diagnose
from daskkern.kernels.formula import DIFFERENCES, Expression, Pair, evaluate
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import as_rows, rows_dtype
from daskkern.losses import decode
from daskkern.training.feeding.targets import Targets

_ROWS = 2048
_STRIP = 128
_JITTERS = 6


@dataclass(frozen=True)
class _Distance(Kernel):
    """``|x - z|``, or a sum of differences, in place of a kernel: the part that all length scales share."""

    kernel: ScaledDistanceKernel

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.shared(pair)

    def caps(self, n_features: int) -> FloatArray | None:
        return self.kernel.caps(n_features)

    def spec(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of one length scale over some rows: ``K^T W K`` (p, p; its lower half) and ``K^T W y`` (p, c), float64."""

    gram: FloatArray
    right: FloatArray

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.gram + other.gram, self.right + other.right)


@dataclass(frozen=True)
class Grid:
    """Kernels that differ only in a scalar length scale, and landmarks Z (p, d) for all of them."""

    kernels: tuple[ScaledDistanceKernel, ...]
    Z: HostArray

    def sums(self, rows: Rows, targets: Targets, part: slice) -> list[Sums]:
        """Return the sums over the rows `part`, one for each kernel. Memory: theirs, and a few blocks of 2,048 rows."""
        p, c = self.Z.shape[0], targets.n_outputs
        found = [Sums(np.zeros((p, p), order="F"), np.zeros((p, c))) for _ in self.kernels]
        for cut in slices(part.stop - part.start, _ROWS):
            block = rows.read(part.start + cut.start, part.start + cut.stop, row_fields(rows))
            assert block.y is not None
            weight = targets.weight(block)
            root = None if weight is None else np.sqrt(weight.astype(np.float64))
            y = targets.encode(block.y).astype(np.float64)
            y = y if root is None else y * root
            for K, each in zip(self._blocks(block.X), found, strict=True):
                K = K if root is None else K * root
                # K^T is in Fortran order: nothing is copied, and only one half is computed.
                scipy.linalg.blas.dsyrk(1.0, K.T, beta=1.0, c=each.gram, lower=1, overwrite_c=1)
                each.right[...] += K.T @ y
        return found

    def scores(self, X: HostArray, coef: Sequence[FloatArray]) -> list[FloatArray]:
        """Return ``K A`` for each kernel and its coefficients."""
        return [K @ A for K, A in zip(self._blocks(X), coef, strict=True)]

    def solutions(self, k: int, sums: Sums, n: int, alphas: Sequence[float]) -> FloatArray:
        """Return the coefficients (p, len(alphas) * c) of kernel number `k`, penalty by penalty.

        Raises
        ------
        DataError
            When the landmarks are too dependent under the kernel.
        """
        lower = _lower(self.kernels[k], self.Z)
        gram = sums.gram / n
        gram += np.tril(gram, -1).T
        half = scipy.linalg.solve_triangular(lower, gram, lower=True, check_finite=False)
        whitened = scipy.linalg.solve_triangular(lower, half.T, lower=True, check_finite=False)
        values, U = scipy.linalg.eigh(whitened, overwrite_a=True, check_finite=False)
        values = np.maximum(values, 0.0)
        right = U.T @ scipy.linalg.solve_triangular(lower, sums.right / n, lower=True, check_finite=False)
        least = float(np.finfo(np.float64).eps) * float(values[-1]) * len(values)
        every = np.concatenate([right / (values[:, None] + max(alpha, least)) for alpha in alphas], axis=1)
        found: FloatArray = scipy.linalg.solve_triangular(lower, U @ every, lower=True, trans="T", check_finite=False)
        return found

    def _blocks(self, X: HostArray | None) -> "list[FloatArray]":
        """Return the blocks (m, p) of all kernels, float64, from one block of distances."""
        assert X is not None
        like = self.kernels[0]
        distance = _Distance(like)
        placements = [kernel.placement_for(self.Z) for kernel in self.kernels]
        wide = any(placement.wide for placement in placements)
        dtype = np.dtype(np.float64) if wide else np.promote_types(rows_dtype(X), rows_dtype(self.Z))
        X, Z = as_rows(X, dtype), as_rows(self.Z, dtype)
        R = distance.block(like.transform(X), distance.points(like.transform(Z), placements[0]))
        blocks = [np.empty(R.shape) for _ in self.kernels]

        def one(strip: slice) -> None:
            for kernel, block in zip(self.kernels, blocks, strict=True):
                r = R[strip].astype(np.float64)
                block[strip] = evaluate(kernel.program, _symbols(kernel, r), np)

        for_each(slices(R.shape[0], _STRIP), one)
        return blocks


def _symbols(kernel: Kernel, shared: FloatArray) -> dict[str, FloatArray]:
    """Return what the formula of `kernel` may read, which may be overwritten, for what all length scales share."""
    if kernel.program.difference is not None:
        return {name: shared.copy() for name in DIFFERENCES}
    return {"distance": shared, "squared_distance": shared * shared}


def _lower(kernel: Kernel, Z: HostArray) -> FloatArray:
    """Return the Cholesky factor of K_ZZ with as little jitter as it needs."""
    K = kernel.block(Z, Z).astype(np.float64)
    jitter = float(np.finfo(np.float64).eps) * len(K) * float(np.diag(K).max())
    for attempt in range(_JITTERS):
        try:
            shifted = K + jitter * 10.0 ** (2 * attempt) * np.eye(len(K))
            lower: FloatArray = scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
            return lower
        except scipy.linalg.LinAlgError:
            continue
    why = diagnose(kernel, Z, Z.dtype, otherwise="take shorter length scales")
    raise DataError(
        f"the {len(K)} landmarks are too dependent under the {kernel.name} kernel for a factor: {why.found}; "
        f"{why.remedy}, or take fewer landmarks"
    )


@dataclass(eq=False)
class Errors:
    """Counts errors of all models of a grid on rows, block by block: wrong labels, or squared errors."""

    targets: Targets
    n_alphas: int
    n_kernels: int

    def __post_init__(self) -> None:
        self._wrong = np.zeros((self.n_kernels, self.n_alphas))
        self._weight = 0.0

    def add(self, k: int, scores: FloatArray, y: HostArray, weight: HostArray | None) -> None:
        """Count the scores (m, n_alphas * c) of kernel number `k` at rows with targets `y`."""
        w = np.ones(len(y)) if weight is None else weight[:, 0].astype(np.float64)
        self._weight += float(w.sum()) if k == 0 else 0.0
        each = scores.reshape(len(y), self.n_alphas, -1)
        if self.targets.n_classes:
            self._wrong[k] += [float(w @ (decode(each[:, a]) != y)) for a in range(self.n_alphas)]
            return
        scale = 1.0 if self.targets.scale is None else self.targets.scale
        off = (each - self.targets.encode(y).astype(np.float64)[:, None]) * scale
        self._wrong[k] += np.einsum("i,iac,iac->a", w, off, off) / off.shape[2]

    def result(self) -> FloatArray:
        """Return shares of wrong labels, or roots of mean squared errors in units of the targets, (kernels, alphas)."""
        mean = self._wrong / self._weight
        return mean if self.targets.n_classes else np.sqrt(mean)


def with_length_scales(kernel: ScaledDistanceKernel, scales: Sequence[float]) -> tuple[ScaledDistanceKernel, ...]:
    """Return `kernel` with each of the length scales."""
    return tuple(replace(kernel, length_scale=float(scale)) for scale in scales)

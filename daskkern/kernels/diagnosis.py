"""Diagnosis of singular kernel matrices: the rows and the length scale at fault, in numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import is_sparse, to_host
from daskkern.kernels.base import Kernel
from daskkern.kernels.columns.mapped import Mapped
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.norms import Difference, difference_norms
from daskkern.kernels.precision import Precision
from daskkern.kernels.rounding import values_at
from daskkern.kernels.rows import as_rows

_SAMPLE = 1024
_CLOSE = 0.999
_FAINT = 1e-4
_FEWEST = 20  # rows whose distances represent all
_DOMINATES = 100.0
_LOST = 1e4
"""Rounding errors within which kernel values no longer distinguish rows."""
_MOST_DENSE, _MOST_SAMPLED = 1 << 26, 1 << 22
"""Numbers of all rows, and of those sampled, that are made dense at most."""


@dataclass(frozen=True)
class Diagnosis:
    """A finding and its remedy; each a clause of a sentence."""

    found: str
    remedy: str


def diagnose(kernel: Kernel, Z: Array, dtype: Any, rows: str = "landmarks", otherwise: str = "") -> Diagnosis:
    """Return why the kernel matrix of `Z` (p, d), made in `dtype`, has no Cholesky factor.

    Rows that repeat others, a feature that decides all distances, a length scale that is large against the distances,
    and one so small that values in `dtype` are rounding, in this order; all that apply are reported. `otherwise` is the
    remedy where none does. Values are those between at most 1,024 of the rows.
    """
    sample = _sample(Z)
    if not np.isfinite(sample).all():
        return Diagnosis(f"some {rows} have features that are not finite", "impute or drop them")
    looked_for = (
        _repeated(Z, rows),
        _dominated(kernel, sample),
        _flat(kernel, sample, rows),
        _rounded(kernel, sample, dtype),
    )
    causes = [cause for cause in looked_for if cause is not None]
    if not causes:
        return Diagnosis(f"the median kernel value of two {rows} is {_median(kernel, sample):.3g}", otherwise)
    remedies = dict.fromkeys(cause.remedy for cause in causes)
    return Diagnosis(", ".join(cause.found for cause in causes), ", ".join(remedies))


def arithmetic_note(kernel: Kernel, Z: Array, precision: Precision | None = None) -> str:
    """Return the arithmetic for float32 rows like `Z` (p, d) and the reason for it, or "" where it is float32.

    `precision` is what features are rounded to.
    """
    Z = as_rows(Z)
    found = kernel.rounding(Z, Z.dtype)
    if found.is_within_tolerance:
        return ""
    wider = kernel.rounding(Z, np.float64)
    spread = f"rows spread over {found.spread:.3g}{_scales(kernel, _sample(Z))}"
    beyond = f"; even float64 values may be wrong by up to {wider.error:.2g}: scale the features"
    beyond = "" if wider.is_within_tolerance else beyond
    if Z.dtype == np.float64:
        return spread + beyond
    if precision not in (None, "float32"):
        return (
            f"rows rounded to {precision}, as asked, though {spread} and even float32 values would be wrong by up to "
            f"{found.error:.2g}: scale the features, or leave the precision out"
        )
    return f"float64 distances: {spread}, and float32 values would be wrong by up to {found.error:.2g}{beyond}"


def digits_note(kernel: Kernel, Z: Array, dtype: Any, rows: str = "centres") -> str:
    """Return why values in `dtype` do not distinguish rows like `Z` (p, d), and a remedy; "" where they do.

    Distances are computed in arithmetic as wide as they need. Inner products are not: rows far from the origin have
    nearly equal ones, and one feature may have all their digits.
    """
    sample, eps = _sample(Z), float(np.finfo(dtype).eps)
    if len(sample) < 2 or kernel.is_shift_invariant or not np.isfinite(sample).all():
        return ""
    flat, dominated = _flat(kernel, sample, rows, _LOST * eps), _dominated(kernel, sample, 1 / (_LOST * eps))
    causes = [cause for cause in (flat, dominated) if cause is not None]
    return ", ".join(cause.found for cause in causes) + "; " + causes[0].remedy if causes else ""


def length_scale_note(kernel: Kernel, Z: Array) -> str:
    """Return why the length scale does not suit rows like `Z` (p, d), or "": nearly all values are near 0 or 1.

    Values are those of up to 1,024 pairs of rows, in units of k(x, x).
    """
    if isinstance(kernel, Mapped) or kernel.coordinates is None or not kernel.is_shift_invariant:
        return ""
    sample = _sample(Z)
    if len(sample) < _FEWEST:
        return ""
    placed = kernel.transform(sample - sample.mean(axis=0))
    gaps = placed - np.roll(placed, len(placed) // 2, axis=0)
    sizes = difference_norms(gaps, kernel.difference(sample.shape[1]) or Difference(2.0))
    values = values_at(kernel.program, np.concatenate([[0.0], sizes]))
    median = float(np.median(np.abs(values[1:]))) / (abs(float(values[0])) or 1.0)
    found = f"the median kernel value of two rows is {median:.2g}{_scales(kernel, sample)}"
    if median < _FAINT:
        remedy = "take a longer length scale, such as 'median', or scale the features"
        return f"{found}: most kernel values are near 0; {remedy}"
    if median > _CLOSE:
        return f"{found}: most kernel values are near 1; take a shorter length scale, such as 'median'"
    return ""


def _sample(Z: Array) -> FloatArray:
    Z = as_rows(Z)
    most = max(2, min(_SAMPLE, _MOST_SAMPLED // max(1, Z.shape[1])))
    some = Z[:: max(1, -(-Z.shape[0] // most))]
    dense = to_host(some.toarray() if is_sparse(some) else some)
    made: FloatArray = dense.astype(np.float64)
    return made


def _repeated(Z: Array, rows: str) -> Diagnosis | None:
    if is_sparse(Z) and Z.shape[0] * Z.shape[1] > _MOST_DENSE:
        return None
    dense: HostArray = np.ascontiguousarray(to_host(Z.toarray() if is_sparse(Z) else Z)) + 0.0  # -0.0 is 0.0
    keys = dense.view(np.dtype((np.void, dense.dtype.itemsize * dense.shape[1])))[:, 0]
    repeated = len(keys) - np.unique(keys).size
    if not repeated:
        return None
    return Diagnosis(f"{repeated} of the {len(keys)} {rows} repeat others", f"take distinct {rows}")


def _dominated(kernel: Kernel, sample: FloatArray, by: float = _DOMINATES) -> Diagnosis | None:
    caps = kernel.caps(sample.shape[1])
    spread = np.where(np.isinf(caps), sample.std(axis=0), 0) if caps is not None else sample.std(axis=0)
    varying = np.flatnonzero(spread > 0)
    if varying.size < 2:
        return None
    widest = int(spread.argmax())
    others = float(np.median(spread[varying[varying != widest]]))
    if spread[widest] < by * others:
        return None
    return Diagnosis(
        f"feature {widest} has a standard deviation of {spread[widest]:.3g}, {spread[widest] / others:.3g} times the "
        "median of the others, and decides all distances",
        "scale the features (--scale standard)",
    )


def _flat(kernel: Kernel, sample: FloatArray, rows: str, within: float = 1 - _CLOSE) -> Diagnosis | None:
    median = _median(kernel, sample)
    if not 1 - median < within:
        return None
    return Diagnosis(
        f"the median kernel value of two {rows} is 1 - {1 - median:.2g}{_scales(kernel, sample)}",
        "take a shorter length scale" if kernel.is_shift_invariant else "centre the features (--scale standard)",
    )


def _rounded(kernel: Kernel, sample: FloatArray, dtype: Any) -> Diagnosis | None:
    rounding = kernel.rounding(sample, dtype)
    if rounding.is_within_tolerance:
        return None
    return Diagnosis(
        f"values in {np.dtype(dtype)} are wrong by up to {rounding.error:.2g}: rows spread over "
        f"{rounding.spread:.3g}{_scales(kernel, sample)}",
        "take a longer length scale" + (" or dtype float64" if np.dtype(dtype) == np.float32 else ""),
    )


def _median(kernel: Kernel, sample: FloatArray) -> float:
    """Return the median value between distinct rows, in units of those of rows with themselves."""
    upper = np.triu_indices(len(sample), 1)
    if not upper[0].size:
        return 0.0
    values, diagonal = kernel.block(sample, sample), np.asarray(kernel.diagonal(sample))
    scale = np.sqrt(np.abs(diagonal[upper[0]] * diagonal[upper[1]]))
    found = values[upper][scale > 0] / scale[scale > 0]
    return float(np.median(found)) if found.size else 0.0


def _scales(kernel: Kernel, sample: FloatArray) -> str:
    """Return the length scale and the median distance, where the kernel has a single length scale."""
    if not isinstance(kernel, ScaledDistanceKernel) or isinstance(kernel.length_scale, tuple | str):
        return ""
    gaps = kernel.transform(sample) - kernel.transform(np.roll(sample, 1, axis=0))
    distance = float(np.median(kernel.distances(gaps)))
    return f" (length scale {kernel.length_scale:.3g}, median distance {distance:.3g})"

"""Results on the device against the same formulas in float64 on the host: values, NaN, places beyond 2^31.

Run as a script, ``python -m on_gpu.correctness``, it makes small products of odd sizes only, for compute-sanitizer.
"""

import argparse
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import namespace_for, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.kernels import KERNELS, Gaussian, Kernel, L1Laplacian, Laplacian, plain_products
from daskkern.kernels.engines import cuda
from on_gpu.sizes import Sizes

_ROWS, _POINTS, _OUTPUTS = 300, 500, 10
_LARGEST_ERROR = 2e-6  # relative to the sum of the terms' magnitudes
_LARGEST_OF_VALUES = 1e-4  # relative to the largest value: distances of close rows have few digits in float32
_FEATURES_OF_EVERY_KERNEL = (5, 70)  # fused, and by a matrix product
_SPARSE = ("rows", "points", "rows and points")

Record = dict[str, Any]


def correctness(
    xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Iterator[tuple[str, Record]]:
    """Yield a record for each check, with its largest error and whether that is within float32's."""
    del where, ceilings
    for d in sizes.features:
        for kernel in (Gaussian(float(d) ** 0.5), Laplacian(float(d) ** 0.5)):
            yield "correctness", products_of(xp, kernel, d)
    for name in KERNELS:
        for d in _FEATURES_OF_EVERY_KERNEL:
            yield "correctness", values_of(xp, name, d)
    for kernel in (Gaussian(20.0), L1Laplacian(300.0)):
        for sort in _SPARSE:
            yield "correctness", sparse_products(xp, kernel, sort)
    for turned in (False, True):
        yield "correctness", sums_of_blocks(xp, turned)
    for d in _FEATURES_OF_EVERY_KERNEL:
        yield "correctness", not_a_number(xp, d)
        yield "correctness", beyond(xp, d, sizes.places)


def products_of(xp: ModuleType, kernel: Kernel, d: int) -> Record:
    """Compare ``K A`` and ``K^T G``."""
    X, Z, A, G = _operands(d)
    squared = ((X[:, None].astype(np.float64) - Z[None]) ** 2).sum(axis=2) if d < 300 else _squared(X, Z)
    K = np.exp(-squared / (2 * d) if isinstance(kernel, Gaussian) else -np.sqrt(squared / d))
    points = kernel.points(xp.asarray(Z))
    found = kernel.matvec(xp.asarray(X), points, xp.asarray(A))
    turned = kernel.rmatvec(xp.asarray(X), points, xp.asarray(G))
    compared = ((found, K @ A, K @ np.abs(A)), (turned, K.T @ G, K.T @ np.abs(G)))
    error = max(float((np.abs(to_host(values) - exact) / size).max()) for values, exact, size in compared)
    return _record("products", error, _LARGEST_ERROR, kernel=kernel.name, d=d)


def values_of(xp: ModuleType, name: str, d: int) -> Record:
    """Compare the values of a kernel of the table."""
    X, Z, _, _ = _operands(d)
    if name.endswith("chi2"):  # of histograms
        X, Z = np.abs(X), np.abs(Z)
    kernel = KERNELS[name].kernel().resolve(Z.astype(np.float64))
    with plain_products():
        exact = kernel.block(X.astype(np.float64), kernel.points(Z.astype(np.float64)))
    found = to_host(kernel.block(xp.asarray(X), kernel.points(xp.asarray(Z))))
    error = float(np.abs(found - exact).max() / max(1e-30, float(np.abs(exact).max())))
    return _record("values", error, _LARGEST_OF_VALUES, kernel=name, d=d)


def sparse_products(xp: ModuleType, kernel: Kernel, sort: str) -> Record:
    """Compare the values of a kernel, and their product, where the rows, the points or both are CSR."""
    try:
        import scipy.sparse  # optional package
    except ImportError:
        return {"check": "sparse rows", "right": True, "note": "not checked: SciPy is missing"}
    X, Z, A = (rows[:count] for rows, count in zip(_operands(1200), (70, 90, 90), strict=False))  # several chunks
    X[np.abs(X) < 1.5], Z[np.abs(Z) < 1.5], X[3] = 0, 0, 0
    with plain_products():
        exact = kernel.block(X.astype(np.float64), kernel.points(Z.astype(np.float64)))
    rows, given = (
        to_device(scipy.sparse.csr_array(table) if side in sort else table, xp)
        for table, side in ((X, "rows"), (Z, "points"))
    )
    points = kernel.points(given)
    left = kernel.left(rows, points)
    error = float(np.abs(to_host(kernel.block(left, points)) - exact).max() / np.abs(exact).max())
    size = np.abs(exact) @ np.abs(A)
    error = max(error, float((np.abs(to_host(kernel.matvec(left, points, xp.asarray(A))) - exact @ A) / size).max()))
    return _record("sparse rows", error, _LARGEST_OF_VALUES, kernel=kernel.name, sparse=sort)


def sums_of_blocks(xp: ModuleType, turned: bool) -> Record:
    """Compare ``sum_over_blocks``, where the device has it."""
    what = "block sums, turned" if turned else "block sums"
    if not hasattr(xp, "cuda"):
        return _record(what, 0.0, _LARGEST_ERROR, note="not on a CPU")
    _, Z, A, _ = _operands(_ROWS)
    device, blocks = cuda.device_of(xp), list(slices(_POINTS, 96))
    table = np.ascontiguousarray(Z if turned else Z.T)
    found = cuda.sum_over_blocks(device, xp.asarray(table), xp.asarray(A), blocks, turned=turned)
    exact, size = Z.T.astype(np.float64) @ A, np.abs(Z.T) @ np.abs(A)
    return _record(what, float((np.abs(to_host(found) - exact) / size).max()), _LARGEST_ERROR)


def not_a_number(xp: ModuleType, d: int) -> Record:
    """A row with NaN has scores of NaN, and changes no other row."""
    X, Z, A, _ = _operands(d)
    kernel = Gaussian(float(d) ** 0.5)
    points, bad = kernel.points(xp.asarray(Z)), 7
    clean = to_host(kernel.matvec(xp.asarray(X), points, xp.asarray(A)))
    X[bad, d // 2] = np.nan
    found = to_host(kernel.matvec(xp.asarray(X), points, xp.asarray(A)))
    others = np.arange(len(X)) != bad
    right = bool(np.isnan(found[bad]).all()) and bool(np.array_equal(found[others], clean[others]))
    return {"check": "a row with NaN", "d": d, "right": right}


def beyond(xp: ModuleType, d: int, places: int) -> Record:
    """A block of more than `places` values is right at its end: indices that need more than 32 bits."""
    record: Record = {"check": "the end of a large block", "d": d, "n_values": places, "right": True}
    if hasattr(xp, "cuda") and xp.cuda.runtime.memGetInfo()[0] < 6 * places:
        return record | {"note": "not checked: too little free memory"}
    rows = int(places**0.5) + 1
    rng = np.random.default_rng(d)
    X, Z = (rng.standard_normal((rows, d)).astype(np.float32) for _ in range(2))
    kernel = Gaussian(float(d) ** 0.5)
    found = kernel.block(xp.asarray(X), kernel.points(xp.asarray(Z)))
    last = to_host(found[-50:, -70:])
    exact = np.exp(-_squared(X[-50:], Z[-70:]) / (2 * d))
    error = float(np.abs(last - exact).max())
    return _record("the end of a large block", error, _LARGEST_OF_VALUES, d=d, n_values=rows * rows)


def small_products(xp: ModuleType) -> None:
    """Launch every kernel once on odd sizes."""
    for d in _FEATURES_OF_EVERY_KERNEL:
        for kernel in (Gaussian(float(d) ** 0.5), Laplacian(float(d) ** 0.5)):
            products_of(xp, kernel, d)
        values_of(xp, "gaussian", d)
    for sort in _SPARSE:
        sparse_products(xp, Gaussian(20.0), sort)
    for turned in (False, True):
        sums_of_blocks(xp, turned)


def _operands(d: int) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    rng = np.random.default_rng(d)
    shapes = ((_ROWS, d), (_POINTS, d), (_POINTS, _OUTPUTS), (_ROWS, _OUTPUTS))
    X, Z, A, G = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return X, Z, A, G


def _squared(X: Array, Z: Array) -> HostArray:
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    return np.maximum((X * X).sum(1)[:, None] + (Z * Z).sum(1) - 2 * X @ Z.T, 0)


def _record(check: str, error: float, most: float, **about: Any) -> Record:
    # A comparison with NaN is False: then the result is wrong.
    return {"check": check, **about, "largest_relative_error": error, "right": bool(error < most)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Small products of odd sizes, for compute-sanitizer.")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    xp = namespace_for(parser.parse_args().device)
    if hasattr(xp, "cuda") and hasattr(xp.cuda, "set_allocator"):
        xp.cuda.set_allocator(None)  # without the pool, which hides what is read beyond an array
    small_products(xp)


if __name__ == "__main__":
    main()

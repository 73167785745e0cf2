"""Sparse section: CSR rows like the IMDB reviews against landmarks, compared with the same product on dense rows."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from daskkern.backend.concurrency import compute_threads, cpu_count
from products.problem import Array, Problem, reference, relative_error, sample_rows
from products.sizes import SparseSizes

_PATHS = ("csr_by_csr", "csr_by_dense", "dense")


def reviews(sizes: SparseSizes, seed: int = 0) -> scipy.sparse.csr_array:
    """Return tf-idf-like rows of norm 1 (n, d), float32, with word frequencies by Zipf's law."""
    rng = np.random.default_rng(seed)
    share = _word_frequencies(sizes.n_features, sizes.density * sizes.n_features)
    blocks = []
    for start in range(0, sizes.n_rows, 1_000):
        rows = min(1_000, sizes.n_rows - start)
        present = scipy.sparse.csr_array(rng.random((rows, len(share)), np.float32) < share)
        counts = rng.geometric(0.7, present.nnz)
        weights = (1 + np.log(counts)) * -np.log(share[present.indices])
        blocks.append(scipy.sparse.csr_array((weights, present.indices, present.indptr), present.shape))
    X = scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))
    norms = np.sqrt(np.maximum(np.asarray(X.multiply(X).sum(axis=1)).ravel(), 1e-12))
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return X.astype(np.float32)


def _word_frequencies(n_features: int, per_row: float) -> Array:
    """Return each word's share of rows: Zipf's law, at most 0.9, with `per_row` words per row on average."""
    law = 1 / (np.arange(n_features) + 2.7)
    low, high = 0.0, float(n_features)
    for _ in range(60):
        scale = (low + high) / 2
        low, high = (scale, high) if np.minimum(0.9, scale * law).sum() < per_row else (low, scale)
    return np.minimum(0.9, low * law).astype(np.float32)


def run_sparse(sizes: SparseSizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one record for each kernel: the sparse paths, the dense path, and their difference."""
    X = reviews(sizes)
    rng = np.random.default_rng(1)
    Z = X[np.sort(rng.choice(sizes.n_rows, sizes.n_points, replace=False))]
    A = rng.standard_normal((sizes.n_points, 1), np.float32)
    records = []
    for kernel in sizes.kernels:
        records.append(_measure(Problem(kernel, 1.0, X, Z, A), sizes))
        say(line_of(records[-1]))
    return records


def _measure(problem: Problem, sizes: SparseSizes) -> dict[str, Any]:
    """Take the paths in turns. Converting the rows of the dense path is not timed."""
    kernel, Z_dense = problem.daskkern_kernel, problem.Z.toarray()
    points = {path: kernel.points(problem.Z if path == "csr_by_csr" else Z_dense) for path in _PATHS}
    seconds: dict[str, list[float]] = {path: [] for path in _PATHS}
    results: dict[str, Any] = {}
    with compute_threads(cpu_count()):
        kernel.matvec(problem.X[:64], points["csr_by_csr"], problem.A)
        kernel.matvec(problem.X[:64], points["csr_by_dense"], problem.A)
        kernel.matvec(problem.X[:64].toarray(), points["dense"], problem.A)
        for path in _PATHS * sizes.n_repeats:
            blocks = _dense_blocks(problem.X, sizes.block_rows) if path == "dense" else iter([problem.X])
            spent, parts = 0.0, []
            for block in blocks:
                begun = time.perf_counter()
                parts.append(kernel.matvec(block, points[path], problem.A))
                spent += time.perf_counter() - begun
            seconds[path].append(spent)
            results[path] = np.concatenate(parts)
    return _record(problem, seconds, results)


def _dense_blocks(X: Any, step: int) -> Iterator[Array]:
    for start, stop in itertools.pairwise([*range(0, X.shape[0], step), X.shape[0]]):
        yield X[start:stop].toarray()


def _record(problem: Problem, seconds: dict[str, list[float]], results: dict[str, Any]) -> dict[str, Any]:
    rows = sample_rows(problem)
    expected = reference(problem, rows)
    medians = {path: statistics.median(values) for path, values in seconds.items()}
    paths = {
        path: {
            "median_seconds": float(f"{median:.4g}"),
            "n_repeats": len(seconds[path]),
            "ns_per_entry": float(f"{median / problem.entries * 1e9:.4g}"),
            "largest_relative_error": float(f"{relative_error(results[path][rows], expected):.3g}"),
            "largest_relative_difference_to_dense": float(f"{relative_error(results[path], results['dense']):.3g}"),
            "speed_ratio_to_dense": float(f"{medians['dense'] / median:.3g}"),
        }
        for path, median in medians.items()
    }
    return {
        "kernel": problem.kernel,
        "n_rows": problem.X.shape[0],
        "n_points": problem.Z.shape[0],
        "n_features": problem.X.shape[1],
        "n_outputs": problem.A.shape[1],
        "stored_percent": round(100 * problem.X.nnz / (problem.X.shape[0] * problem.X.shape[1]), 3),
        "paths": paths,
    }


def line_of(record: dict[str, Any]) -> str:
    """Return the record as one line."""
    parts = [
        f"{path} {figures['median_seconds']:.3g} s ({figures['speed_ratio_to_dense']:.3g} x dense,"
        f" differs by {figures['largest_relative_difference_to_dense']:.1e})"
        for path, figures in record["paths"].items()
    ]
    return f"{record['kernel']:9s} {record['stored_percent']:.2f}% stored: {', '.join(parts)}"

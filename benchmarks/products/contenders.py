"""The contenders: straightforward NumPy, torch, KeOps and daskkern, each with all cores and float32.

Each gets the same arrays and may prepare the points Z once, because a model uses them for every batch of rows.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from daskkern.backend.concurrency import compute_threads, cpu_count, library_threads
from products.clock import Contender, timed
from products.problem import Problem

HOW_TO_INSTALL = {
    "torch": "pip install torch (a CPU build is enough)",
    "keops": "pip install pykeops (needs a C++ compiler: it compiles each formula at first use)",
}
_MODULES = {"torch": "torch", "torch_whole_block": "torch", "keops": "pykeops"}
_TILE_ROWS = (128, 512)
_TRIALS, _TRIALS_S = 3, 6.0


def importable(method: str) -> bool:
    """Return whether the library of that method is installed and loads."""
    try:
        importlib.import_module(_MODULES.get(method, "numpy"))
    except ImportError:
        return False
    return True


def numpy_naive(problem: Problem) -> Contender:
    """Return the whole block with plain textbook expressions."""
    X, Z, A = problem.X, problem.Z, problem.A

    def product() -> Any:
        squared = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1)[None] - 2 * X @ Z.T
        squared = np.maximum(squared, 0)
        if problem.kernel == "gaussian":
            return np.exp(-squared / np.float32(2 * problem.length_scale**2)) @ A
        return np.exp(-np.sqrt(squared) / np.float32(problem.length_scale)) @ A

    return Contender("numpy", "whole block", product, _all_threads)


def daskkern_product(problem: Problem) -> Contender:
    """Return the product of this package."""
    kernel = problem.daskkern_kernel
    begun = time.perf_counter()
    points = kernel.points(problem.Z)
    prepare = time.perf_counter() - begun

    @contextlib.contextmanager
    def threads() -> Iterator[None]:
        with compute_threads(cpu_count()):
            yield

    return Contender("daskkern", "matvec", lambda: kernel.matvec(problem.X, points, problem.A), threads, prepare)


def keops(problem: Problem) -> Contender:
    """Return KeOps's compiled reduction of the formula, on the CPU. It is compiled here."""
    import pykeops
    from pykeops.numpy import LazyTensor

    pykeops.set_verbose(False)

    def on(X: Any) -> Any:
        x_i, y_j = LazyTensor(X[:, None, :]), LazyTensor(problem.Z[None, :, :])
        squared = ((x_i - y_j) ** 2).sum(-1)
        if problem.kernel == "gaussian":
            K = (-squared / (2 * problem.length_scale**2)).exp()
        else:
            K = (-squared.sqrt() / problem.length_scale).exp()
        return K.__matmul__(problem.A, backend="CPU")

    on(problem.X[:8])
    return Contender("keops", "LazyTensor", lambda: on(problem.X), _all_threads)


def torch_ways(problem: Problem) -> list[Contender]:
    """Return the variants of torch: squared distances by addmm or cdist, then in place; whole block or row tiles."""
    import torch

    torch.set_grad_enabled(False)
    X, Z, A = (torch.from_numpy(array) for array in (problem.X, problem.Z, problem.A))
    n, p = problem.X.shape[0], problem.Z.shape[0]
    begun = time.perf_counter()
    Z_t, z_squared = Z.T.contiguous(), (Z * Z).sum(1)
    prepare = time.perf_counter() - begun
    gaussian = problem.kernel == "gaussian"
    factor = -1 / (2 * problem.length_scale**2) if gaussian else -1 / problem.length_scale
    memory = torch.empty(n, p)

    def by_addmm(rows: Any, block: Any) -> Any:
        torch.addmm(z_squared, rows, Z_t, alpha=-2, out=block)
        block.add_((rows * rows).sum(1)[:, None]).clamp_min_(0)
        return block if gaussian else block.sqrt_()

    def by_cdist(rows: Any, block: Any) -> Any:
        distance = torch.cdist(rows, Z, compute_mode="use_mm_for_euclid_dist")
        return distance.square_() if gaussian else distance

    def way(name: str, distances: Callable[[Any, Any], Any], step: int) -> Contender:
        def product() -> Any:
            out = torch.empty(n, A.shape[1])
            for start in range(0, n, step):
                rows = X[start : start + step]
                block = distances(rows, memory[: len(rows)])
                torch.mm(block.mul_(factor).exp_(), A, out=out[start : start + step])
            return out.numpy()

        size = "whole block" if step == n else f"tiles of {step} rows"
        return Contender("torch", f"{name}, {size}", product, _torch_threads, prepare)

    steps = [*(step for step in _TILE_ROWS if step < n), n]
    return [way(name, by, step) for name, by in (("addmm", by_addmm), ("cdist", by_cdist)) for step in steps]


def ranked(ways: list[Contender]) -> list[Contender]:
    """Return the variants, the one with the lowest time in a few interleaved trials first.

    On a busy machine one trial can take seconds; then one round must suffice.
    """
    seconds: dict[str, list[float]] = {each.way: [] for each in ways}
    deadline = time.perf_counter() + _TRIALS_S
    for number in range(_TRIALS):
        if number and time.perf_counter() > deadline:
            break
        for each in ways:
            seconds[each.way].append(timed(each, warm=True)[0])
    return sorted(ways, key=lambda each: min(seconds[each.way]))


def contenders(problem: Problem, methods: tuple[str, ...]) -> list[Contender]:
    """Return the contenders of those names, in this order; torch is represented by its fastest variants."""
    chosen = []
    if "numpy" in methods:
        chosen.append(numpy_naive(problem))
    if "torch" in methods or "torch_whole_block" in methods:
        ways = ranked(torch_ways(problem))
        whole = next(each for each in ways if each.way.endswith("whole block"))
        if "torch_whole_block" in methods:
            chosen.append(replace(whole, name="torch_whole_block"))
        if "torch" in methods:
            chosen.append(ways[0])
    if "keops" in methods:
        chosen.append(keops(problem))
    if "daskkern" in methods:
        chosen.append(daskkern_product(problem))
    return chosen


def matrix_products(problem: Problem) -> list[Contender]:
    """Return the reference: np.matmul of the same shapes, X Z^T alone and with K A, into preallocated memory."""
    block = np.ones((problem.X.shape[0], problem.Z.shape[0]), np.float32)
    out = np.empty((problem.X.shape[0], problem.A.shape[1]), np.float32)

    def both() -> None:
        np.matmul(problem.X, problem.Z.T, out=block)
        np.matmul(block, problem.A, out=out)

    def one() -> None:
        np.matmul(problem.X, problem.Z.T, out=block)

    return [
        Contender("matmul_distances", "np.matmul(X, Z.T)", one, _all_threads),
        Contender("matmul_both", "np.matmul(X, Z.T), np.matmul(K, A)", both, _all_threads),
    ]


@contextlib.contextmanager
def _all_threads() -> Iterator[None]:
    with library_threads(cpu_count()):
        yield


@contextlib.contextmanager
def _torch_threads() -> Iterator[None]:
    import torch

    with library_threads(cpu_count()):
        torch.set_num_threads(cpu_count())
        yield

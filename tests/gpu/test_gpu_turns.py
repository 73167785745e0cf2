"""Threads of one process at the GPU: one works at a time, and what they need is compiled once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np

from daskkern.backend.devices import compiled_once
from daskkern.backend.namespace import exclusive_gpu
from daskkern.kernels import Gaussian
from daskkern.linalg import lazy_kernel_matrix


def _most_at_once(xp: ModuleType) -> int:
    inside, seen, lock = [0], [0], threading.Lock()

    def task(_: int) -> None:
        with exclusive_gpu(xp), exclusive_gpu(xp):  # a task may ask for its turn again
            with lock:
                inside[0] += 1
                seen[0] = max(seen[0], inside[0])
            time.sleep(0.02)
            with lock:
                inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(task, range(8)))
    return seen[0]


def test_tasks_take_turns_at_a_gpu_and_not_at_processors(xp: ModuleType) -> None:
    assert _most_at_once(xp) == 1
    assert _most_at_once(np) > 1


def test_threads_wait_for_what_another_compiles() -> None:
    made: list[tuple[str, int]] = []

    @compiled_once
    def compiled(text: str, number: int) -> str:
        time.sleep(0.05)
        made.append((text, number))
        return text * number

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(compiled, "abababab", [2] * 8)) == ["aa", "bb"] * 4
    assert sorted(made) == [("a", 2), ("b", 2)]


def test_blocks_of_several_threads_are_those_of_one(xp: ModuleType) -> None:
    X = np.random.default_rng(0).standard_normal((90, 3)).astype(np.float32)
    lazy = lazy_kernel_matrix(Gaussian(1.5), X, X, chunk=16, device="gpu")
    found = lazy.compute(scheduler="threads", num_workers=4)
    np.testing.assert_allclose(found, Gaussian(1.5).block(X, X), atol=1e-5)

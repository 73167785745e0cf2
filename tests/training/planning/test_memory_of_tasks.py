"""A fit in a task plans with the memory of the worker that runs it."""

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.backend.current import memory_of_worker
from daskkern.errors import MemoryBudgetError
from daskkern.training.planning.memory_plan import LIMIT_SHARE, available_memory, memory_here
from tests.support.cluster import local_cluster


def _fitted() -> str:
    X = np.random.default_rng(0).standard_normal((20_000, 2))
    try:
        KernelRegressor(solver="direct", loss="squared", device="cpu").fit(X, X[:, 0])
    except MemoryBudgetError as error:
        return str(error)
    return "fitted"


@pytest.mark.cluster
def test_a_task_may_use_what_its_worker_may() -> None:
    assert memory_of_worker() is None
    assert memory_here() <= 1.1 * available_memory()
    with local_cluster(1, memory_limit="1 GB") as client:
        assert client.submit(memory_of_worker, pure=False).result() == 10**9
        assert client.submit(memory_here, pure=False).result() == int(LIMIT_SHARE * 10**9)
        assert "800 MB" in client.submit(_fitted, pure=False).result()  # its kernel matrix takes 3.2 GB

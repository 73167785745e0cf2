"""What the ranks of the tests run. In a module of its own, which the workers import."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import get_worker
from threadpoolctl import threadpool_info

from daskkern.backend.communicator import Communicator
from daskkern.errors import DataError
from daskkern.events import BatchFinished, EpochFinished, Listener, StageFinished

Stop = Callable[[], bool]

SHAPES = [(0,), (), (1,), (3, 0), (7,), (128, 5), (40, 30, 4), (600, 1000)]
"""The last has more bytes than the limit from which sums are taken in segments, in float64."""


def contribution(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng([rank, len(shape)])
    return np.asarray(1000 * rng.standard_normal(shape)).astype(dtype)


def all_collectives(comm: Communicator, dtype: str, emit: Listener, should_stop: Stop) -> list[Any]:
    """Run each collective on each shape and return what came, as bytes where bits matter."""
    found = []
    for shape in SHAPES:
        mine = contribution(comm.rank, shape, dtype)
        kept = mine.copy()
        total = comm.allreduce(mine)
        parts = comm.allgather(mine)
        last = comm.broadcast(mine, root=comm.size - 1)
        comm.barrier()
        for array in (total, *parts, last):
            assert array.flags.writeable
            assert array.flags.aligned
            array[...] = array  # nobody else sees what is written
        np.testing.assert_array_equal(mine, kept)
        found.append((total, parts, last))
    return found


def many_steps(comm: Communicator, steps: int, emit: Listener, should_stop: Stop) -> float:
    x = np.ones(1000)
    for _ in range(steps):
        y = comm.allreduce(x)
        x[:] = y / comm.size  # written at once: what was sent must have been a copy
        y[:] = -1.0
    return float(x.sum())


def strided(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> np.ndarray:
    return comm.allreduce(np.arange(24.0).reshape(4, 6)[::2, ::-3])


def uneven_gather(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> list[np.ndarray]:
    return list(comm.allgather(np.full((comm.rank, 2), comm.rank, "float32")))


def different_shapes(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    return comm.allreduce(np.zeros(3 + comm.rank))


def different_collectives(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    x = np.zeros(3)
    return comm.allreduce(x) if comm.rank == 0 else comm.allgather(x)


def wrong_dtype(comm: Communicator, dtype: str, emit: Listener, should_stop: Stop) -> Any:
    return comm.allreduce(np.zeros(3, dtype))


def silent_peer(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    if comm.rank == comm.size - 1:
        while not should_stop():
            time.sleep(0.01)
        return None
    return comm.allreduce(np.zeros(3))


def counted(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> int:
    comm.allreduce(np.zeros(10))
    return comm.bytes_sent


def own_payload(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> tuple[int, Any]:
    return comm.rank, payload


def raises_data_error(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    comm.barrier()
    if comm.rank == 1:
        raise DataError("row 7 of X has a NaN; drop it")
    return comm.allreduce(np.zeros(3))


def raises_zero_division(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    if comm.rank == comm.size - 1:
        return 1 // 0
    return comm.allreduce(np.zeros(3))


def exits(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> Any:
    if comm.rank == 0:
        raise SystemExit(3)
    return comm.allreduce(np.zeros(3))


def dies(comm: Communicator, victim: int, emit: Listener, should_stop: Stop) -> Any:
    """Step along until rank `victim` kills its process."""
    for step in range(100_000):
        comm.allreduce(np.zeros(100))
        if step == 20 and comm.rank == victim:
            os.kill(os.getpid(), 9)
    return None


def until_stopped(comm: Communicator, folder: str | None, emit: Listener, should_stop: Stop) -> int:
    """Step until the ranks agree to stop; leave a file in `folder` when running and another when done."""
    steps = 0
    if folder is not None:
        open(os.path.join(folder, f"running-{comm.rank}"), "w").close()
    try:
        while comm.allreduce(np.array([float(should_stop())]))[0] == 0:
            steps += 1
            time.sleep(0.005)
        return steps
    finally:
        if folder is not None:
            open(os.path.join(folder, f"done-{comm.rank}"), "w").close()


def until_aborted(comm: Communicator, folder: str, emit: Listener, should_stop: Stop) -> int:
    """Like `until_stopped`, and deaf to the request."""
    return until_stopped(comm, folder, emit, lambda: False)


def never_stops(comm: Communicator, seconds: float, emit: Listener, should_stop: Stop) -> None:
    time.sleep(seconds)


def emits(comm: Communicator, n_batches: int, emit: Listener, should_stop: Stop) -> None:
    emit(StageFinished("landmarks", 0.5, f"rank {comm.rank}"))
    for epoch in (1, 2):
        for batch in range(1, n_batches + 1):
            emit(BatchFinished(epoch, batch, n_batches, 1.0 / batch, 10.0))
            comm.barrier()
        emit(EpochFinished(epoch, 0.25, 1.0))


def blas_threads(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> tuple[int, list[int]]:
    counts = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    return get_worker().state.nthreads, counts


def meets_ordinary_tasks(comm: Communicator, payload: Any, emit: Listener, should_stop: Stop) -> int:
    """Step until an ordinary task has run on the same worker."""
    worker = get_worker()
    steps = 0
    while True:
        steps += 1
        met = float(any(str(key).startswith("ordinary") for key in worker.data))
        if comm.allreduce(np.array([met]))[0] == comm.size:
            return steps
        time.sleep(0.005)


def emits_and_waits(comm: Communicator, folder: str, emit: Listener, should_stop: Stop) -> int:
    emit(StageFinished("waiting", 0.0))
    return until_stopped(comm, folder, emit, should_stop)

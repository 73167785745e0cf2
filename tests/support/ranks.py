"""What the ranks of the tests run. In a module of its own, which the workers import."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from subprocess import Popen
from typing import Any

import numpy as np
from distributed import get_worker
from threadpoolctl import threadpool_info

from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.errors import DataError
from daskkern.events import BatchFinished, EpochFinished, FitResumed, StageFinished

SHAPES = [(0,), (), (1,), (3, 0), (7,), (128, 5), (40, 30, 4), (600, 1000)]
"""The last has more bytes than the limit from which sums are taken in segments, in float64."""


def contribution(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng([rank, len(shape)])
    return np.asarray(1000 * rng.standard_normal(shape)).astype(dtype)


def all_collectives(comm: Communicator, dtype: str, context: RankContext) -> list[Any]:
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


def many_steps(comm: Communicator, steps: int, context: RankContext) -> float:
    x = np.ones(1000)
    for _ in range(steps):
        y = comm.allreduce(x)
        x[:] = y / comm.size  # written at once: what was sent must have been a copy
        y[:] = -1.0
    return float(x.sum())


def strided(comm: Communicator, payload: Any, context: RankContext) -> np.ndarray:
    return comm.allreduce(np.arange(24.0).reshape(4, 6)[::2, ::-3])


def uneven_gather(comm: Communicator, payload: Any, context: RankContext) -> list[np.ndarray]:
    return list(comm.allgather(np.full((comm.rank, 2), comm.rank, "float32")))


def different_shapes(comm: Communicator, payload: Any, context: RankContext) -> Any:
    return comm.allreduce(np.zeros(3 + comm.rank))


def different_collectives(comm: Communicator, payload: Any, context: RankContext) -> Any:
    x = np.zeros(3)
    return comm.allreduce(x) if comm.rank == 0 else comm.allgather(x)


def wrong_dtype(comm: Communicator, dtype: str, context: RankContext) -> Any:
    return comm.allreduce(np.zeros(3, dtype))


def silent_peer(comm: Communicator, payload: Any, context: RankContext) -> Any:
    """Leave out a collective on the last rank, which ends without it."""
    return None if comm.rank == comm.size - 1 else comm.allreduce(np.zeros(3))


def slow_peer(comm: Communicator, seconds: float, context: RankContext) -> float:
    """Take `seconds` for a step of the last rank."""
    if comm.rank == comm.size - 1:
        time.sleep(seconds)
    return float(comm.allreduce(np.ones(3)).sum())


def peer_that_hangs(comm: Communicator, seconds: float, context: RankContext) -> Any:
    """Stop the process of the last rank for `seconds` seconds."""
    comm.barrier()
    if comm.rank == comm.size - 1:
        Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"], start_new_session=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.5)  # this thread may run on for a moment, in which a sum in shared memory would be given its term
    return comm.allreduce(np.zeros(3))


def counted(comm: Communicator, payload: Any, context: RankContext) -> int:
    before = comm.bytes_sent
    comm.allreduce(np.zeros(10))
    return comm.bytes_sent - before


def ways_of_messages(comm: Communicator, payload: Any, context: RankContext) -> list[str]:
    """Return both ends of every connection that this worker has after its ranks have talked."""
    for size in (10, 400_000):
        comm.allreduce(np.zeros(size))
        comm.allgather(np.zeros(size))
    worker = get_worker()
    pool = worker.rpc
    ways = [*worker._comms, *(way for ways in (pool.occupied, pool.available) for way in ways_of(ways))]
    return [address for way in ways for address in (way.local_address, way.peer_address)]


def ways_of(pool: Any) -> list[Any]:
    return [way for ways in list(pool.values()) for way in list(ways)]


@dataclass(frozen=True)
class Hangs:
    """A payload that stops the first process of `pids` that unpickles it twice, and does nothing to the others.

    The first time is that of the check whether the workers can.
    """

    pids: tuple[int, ...]
    mark: str

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _unpickled, (self.pids, self.mark)


def _unpickled(pids: tuple[int, ...], mark: str) -> Hangs:
    if os.getpid() in pids:
        try:
            os.close(os.open(f"{mark}-{os.getpid()}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            with suppress(FileExistsError):
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGSTOP)
    return Hangs(pids, mark)


def own_payload(comm: Communicator, payload: Any, context: RankContext) -> tuple[int, Any]:
    return comm.rank, payload


def raises_data_error(comm: Communicator, payload: Any, context: RankContext) -> Any:
    comm.barrier()
    if comm.rank == 1:
        raise DataError("row 7 of X has a NaN; drop it")
    return comm.allreduce(np.zeros(3))


def raises_zero_division(comm: Communicator, payload: Any, context: RankContext) -> Any:
    if comm.rank == comm.size - 1:
        return 1 // 0
    return comm.allreduce(np.zeros(3))


def exits(comm: Communicator, payload: Any, context: RankContext) -> Any:
    if comm.rank == 0:
        raise SystemExit(3)
    return comm.allreduce(np.zeros(3))


def dies(comm: Communicator, victim: int, context: RankContext) -> Any:
    """Step along until rank `victim` kills its process."""
    for step in range(100_000):
        comm.allreduce(np.zeros(100))
        if step == 20 and comm.rank == victim:
            os.kill(os.getpid(), 9)
    return None


def until_stopped(comm: Communicator, folder: str | None, context: RankContext) -> int:
    """Step until the ranks agree to stop; leave a file in `folder` for each rank that began and each that ended."""
    steps = 0
    if folder is not None:
        with suppress(FileNotFoundError):
            os.remove(os.path.join(folder, f"done-{comm.rank}"))
        open(os.path.join(folder, f"running-{comm.rank}"), "w").close()
    try:
        while comm.allreduce(np.array([float(context.should_stop())]))[0] == 0:
            steps += 1
            if steps % 20 == 0:
                context.emit(BatchFinished(1, steps, steps, 1.0, 10.0))
            time.sleep(0.005)
        return steps
    finally:
        if folder is not None:
            open(os.path.join(folder, f"done-{comm.rank}"), "w").close()


def until_aborted(comm: Communicator, folder: str, context: RankContext) -> int:
    """Like `until_stopped`, and deaf to the request."""
    return until_stopped(comm, folder, RankContext(context.emit))


def never_stops(comm: Communicator, seconds: float, context: RankContext) -> None:
    context.emit(BatchFinished(1, 1, 1, 1.0, 10.0))
    time.sleep(seconds)


def emits(comm: Communicator, n_batches: int, context: RankContext) -> None:
    context.emit(StageFinished("landmarks", 0.5, f"rank {comm.rank}"))
    for epoch in (1, 2):
        for batch in range(1, n_batches + 1):
            context.emit(BatchFinished(epoch, batch, n_batches, 1.0 / batch, 10.0))
            comm.barrier()
        context.emit(EpochFinished(epoch, 0.25, 1.0))


def blas_threads(comm: Communicator, payload: Any, context: RankContext) -> tuple[int, list[int]]:
    counts = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    return get_worker().state.nthreads, counts


def meets_ordinary_tasks(comm: Communicator, payload: Any, context: RankContext) -> int:
    """Step until an ordinary task has run on the same worker."""
    worker = get_worker()
    steps = 0
    while True:
        steps += 1
        met = float(any(str(key).startswith("ordinary") for key in worker.data))
        if comm.allreduce(np.array([met]))[0] == comm.size:
            return steps
        time.sleep(0.005)


def emits_and_waits(comm: Communicator, folder: str, context: RankContext) -> int:
    context.emit(StageFinished("waiting", 0.0))
    return until_stopped(comm, folder, context)


def counts(comm: Communicator, steps: int, context: RankContext) -> tuple[int, float, list[int]] | Regroup:
    """Add 1 a step, commit every 5, and go on from the latest commit of any rank. Returns size, sum and starts."""
    kept = context.commit_cache.latest
    held = np.concatenate(comm.allgather(np.array([[-1 if kept is None else kept.steps]], np.int64)))
    start, total = int(held.max()), 0.0
    if start >= 0:
        mine = np.zeros(1) if kept is None else np.frombuffer(kept.data.tobytes(), float).copy()
        total = float(comm.broadcast(mine, int(held.argmax()))[0])
    start = max(start, 0)
    context.emit(FitResumed(1, start, comm.size))
    for step in range(start, steps):
        total += float(comm.allreduce(np.ones(1))[0]) / comm.size
        time.sleep(0.01)
        if step % 5 == 4:
            context.commit_cache.put(step + 1, np.frombuffer(np.array([total]).tobytes(), np.uint8))
            context.emit(BatchFinished(1, step + 1, steps, total, float(comm.size)))
            if comm.allreduce(np.array([float(context.should_regroup())]))[0] > 0:
                return Regroup()
    return comm.size, total, start


def notes_steps(comm: Communicator, payload: tuple[str, int, int], context: RankContext) -> int | Regroup:
    """Note each step of rank 0 in a file; commit every so many steps, and when the gang is to be formed again.

    `payload` is the file, the number of steps, and the steps between two commits. Returns the number of ranks.
    """
    file, steps, between = payload
    kept = context.commit_cache.latest
    start = max(int(part[0]) for part in comm.allgather(np.array([0 if kept is None else kept.steps], np.int64)))
    for step in range(start + 1, steps + 1):
        comm.allreduce(np.ones(1))
        if comm.rank == 0:
            with open(file, "a") as notes:
                notes.write(f"{step}\n")
        context.emit(BatchFinished(1, step, steps, 0.0, 1.0))
        time.sleep(0.01)
        regroup = comm.allreduce(np.array([float(context.should_regroup())]))[0] > 0
        if regroup or step % between == 0:
            context.commit_cache.put(step, np.zeros(1, np.uint8))
        if regroup:
            return Regroup()
    return comm.size


def dies_always(comm: Communicator, payload: Any, context: RankContext) -> None:
    """Die on rank 0 at once, however often it is tried."""
    comm.barrier()
    if comm.rank == 0:
        os._exit(3)
    comm.barrier()


def dies_at_first(comm: Communicator, payload: tuple[str, int], context: RankContext) -> int:
    """Die on rank 0 as often as requested, which is noted in a folder; then return the number of ranks."""
    folder, times = payload
    comm.barrier()
    number = len(os.listdir(folder))
    if comm.rank == 0 and number < times:
        with open(os.path.join(folder, str(number)), "w"):
            os._exit(3)
    return comm.size


_PRODUCTS: list[int] = []
"""The ranks of this process that are in a product."""


def long_product(comm: Communicator, folder: str, context: RankContext) -> int:
    """Return the most ranks that were in a product at once in this process; the first rank dies in the first one.

    The last rank takes 6 s for it, and does not notice that the gang is formed again.
    """
    mark = os.path.join(folder, "died")
    first = not os.path.exists(mark)
    comm.barrier()
    _PRODUCTS.append(comm.rank)
    most = 0
    try:
        if first and comm.rank == 0:
            open(mark, "w").close()
            time.sleep(0.5)  # until the other has left the barrier
            os._exit(3)
        for _ in range(60 if first else 1):
            most = max(most, len(_PRODUCTS))
            time.sleep(0.1)
    finally:
        _PRODUCTS.pop()
    return most

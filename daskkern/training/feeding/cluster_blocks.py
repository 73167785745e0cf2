"""Rows in blocks: dask arrays, whose blocks are computed when they are read, and arrays of a cluster."""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dask.base import compute, tokenize
from dask.delayed import delayed
from distributed import Client, Future, get_worker, wait
from distributed.client import FutureCancelledError

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.current import current
from daskkern.backend.task_names import task_name
from daskkern.cluster.connect.connecting import own_client
from daskkern.cluster.connect.membership import ask_scheduler, live_workers
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.csr import FeatureRows, is_sparse, stack_rows
from daskkern.data.rows.finite import check_finite
from daskkern.data.rows.rows import Rows
from daskkern.errors import ClusterError, DaskkernError, DataError
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Kept, SentRows

_CACHED_BLOCKS = 8
_PATIENCE_S = (3.0, 10.0, 30.0, 60.0)
_LOOK_S = 0.5
_AGAIN_S = 3600.0
"""Most seconds that a repeated set-up, or a block that is computed again, may take."""
_FORGIVEN = 3


@dataclass(frozen=True, eq=False)
class LazyBlock:
    """A block of rows of dask arrays, and the function that makes a triple of its parts."""

    parts: tuple[Any, Any, Any]
    encode: Callable[[Any, Any, Any], Any]

    def __call__(self) -> Any:
        """Compute the block in this thread."""
        return self.encode(*compute(*self.parts, scheduler="synchronous"))

    def delayed(self) -> Any:
        """Return the block as a task, whose inputs Dask schedules and computes once for all blocks."""
        return delayed(self.encode, pure=False)(*self.parts, dask_key_name=task_name("rows"))


@dataclass(frozen=True)
class RemoteValue:
    """A finished result on the cluster; unlike a Future it can be sent within a record.

    Attributes
    ----------
    key : str
    again_s : float
        Seconds in which a value that was lost with its workers must be sent again.
    """

    key: str
    again_s: float = 30.0

    def fetch(self) -> Any:
        """Return the value, copied to this worker from one that has it. Raises the error of its task.

        Raises
        ------
        ClusterError
            When no worker sends it, because those that had it are gone.
        """
        try:
            outcome: Any = get_worker().data[self.key]
        except KeyError:
            outcome = self._gathered()
        if isinstance(outcome, DaskkernError):
            raise outcome
        return outcome

    def _gathered(self) -> Any:
        """Retry with timeouts: when a worker is lost during the transfer, Dask may wait forever."""
        client = own_client()
        for patience_s in _PATIENCE_S:
            # A Future constructed here needs the state of its finished task; else it waits forever.
            future: Future[Any] = Future(self.key, client, state="memory")  # type: ignore[arg-type]
            try:
                return future.result(timeout=patience_s)
            except (TimeoutError, FutureCancelledError):
                future.release()
            if not _held_again(client, self.key, self.again_s):
                break
        raise ClusterError(
            f"worker {get_worker().address} requested {self.key}, but no worker sends it: those that had it are gone; "
            "fit again, or put the rows into a store, which other workers can read"
        )


def _held_again(client: Client, key: str, again_s: float) -> bool:
    """Wait while the value of `key` is computed again, or sent again by the process that sent it.

    Return whether there is one. The scheduler forgets values that were sent when their workers leave, and knows
    nothing of the process that may send them again: it has `again_s`.
    """
    forgotten = time.monotonic() + again_s
    deadline = time.monotonic() + _AGAIN_S
    failures = _Failures(client, key, "a block of rows")
    while time.monotonic() < min(forgotten, deadline):
        state = failures.state()
        if state == "memory":
            return True
        if state not in ("", "released", "forgotten"):
            forgotten = time.monotonic() + again_s
        time.sleep(_LOOK_S)
    return False


class _Failures:
    """The failures of a task that runs again because its result was lost: a few are forgiven.

    Workers that have just started, or are about to leave, may fail where others would not.
    """

    def __init__(self, client: Client, key: str, what: str) -> None:
        self._client, self._key, self._what, self._count = client, key, what, 0

    def state(self) -> str:
        """Return the task's state, "" for an unknown one, after starting it once more if it has failed.

        Raises
        ------
        ClusterError
            With the error of the task, after `_FORGIVEN` failures.
        """
        state = ask_scheduler(self._client, "get_task_status", keys=[self._key])[self._key]
        if state == "erred":
            self._count += 1
            if self._count > _FORGIVEN:
                raise ClusterError(
                    f"{self._what} was lost with its worker, and cannot be computed again{self._error()}"
                )
            with suppress(KeyError):  # forgotten meanwhile
                ask_scheduler(self._client, "retry", keys=[self._key])
        return str(state or "")

    def _error(self) -> str:
        with suppress(ClusterError):  # without a fit, nothing answers
            return ": " + str(ask_fits(self._client, "task_state", key=self._key)[2])
        return ""


def wait_for(client: Client, key: str) -> None:
    """Wait until a worker has the value of `key`, which may be recomputed after the loss of its worker.

    Raises
    ------
    ClusterError
        When it fails each time, or takes an hour.
    """
    deadline = time.monotonic() + _AGAIN_S
    failures = _Failures(client, key, "the set-up of the fit")
    while time.monotonic() < deadline:
        if failures.state() == "memory":
            holders = ask_scheduler(client, "who_has", keys=[key]).get(key, ())
            if set(holders) & live_workers(client).keys():
                return
        time.sleep(_LOOK_S)
    raise ClusterError(
        f"the set-up of the fit was lost with its worker, and not recomputed in {_AGAIN_S:g} s; fit again"
    )


def remote_values(keys: Iterable[Any]) -> tuple[RemoteValue, ...]:
    return tuple(RemoteValue(str(key)) for key in keys)


Triple = tuple[FeatureRows, HostArray | None, HostArray | None]


@dataclass(frozen=True, eq=False)
class BlockSource(RowSource):
    """Blocks of rows on a cluster, or callables of this process: dask arrays, and arrays sent to a cluster.

    Attributes
    ----------
    blocks : tuple of RemoteValue or of LazyBlock
        Each returns (X, y or None, weight or None) of its rows.
    sizes : tuple of int
        Rows of each block.
    """

    blocks: tuple[Any, ...]
    sizes: tuple[int, ...]
    has_weight: bool
    info: SourceInfo
    whole_blocks: bool = False
    """Whether batches are drawn from whole blocks, as from the groups of rows in files."""
    itemsize: int = 8
    """Bytes of a number of the features, as they are in the blocks."""
    spread: float = 1.0
    """How many times its equal share of the blocks the worker with most of them has."""

    @classmethod
    def sent(
        cls,
        client: Client,
        blocks: Sequence[Callable[[], "Triple"]],
        sizes: Sequence[int],
        has_weight: bool,
        info: SourceInfo,
        workers: Sequence[str] | None,
        itemsize: int,
    ) -> tuple["BlockSource", tuple[Kept, ...]]:
        """Send blocks of this process to `workers`, or all; return them as a source, and what keeps them there."""
        sent = SentRows(client, {task_name("rows"): block for block in blocks}, workers)
        return cls(remote_values(sent.keys), tuple(sizes), has_weight, info, itemsize=itemsize), (sent,)

    @property
    def bytes_on_workers(self) -> int:
        if not isinstance(self.blocks[0], RemoteValue):
            return 0
        info = self.info
        stored = info.n_rows * info.n_features * self.itemsize
        if info.n_stored is not None:  # values, with column numbers and row pointers of up to 8 bytes
            stored = info.n_stored * (self.itemsize + 8) + 8 * info.n_rows
        return int(self.spread * (stored + 8 * info.n_rows * (info.n_targets + self.has_weight)))

    def open(self, dtype: str) -> Rows:
        return BlockRows(self, dtype)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Kept, ...]]:
        del dtype
        futures = client.compute([block.delayed() for block in self.blocks])
        with current(client):
            wait(futures)
        for future in futures:
            if future.status == "error":
                raise DataError(f"a block of the dask arrays cannot be computed: {future.exception()}")
        keys = [future.key for future in futures]
        spread = _spread(client, keys, len(workers or live_workers(client)))
        return replace(self, blocks=remote_values(keys), spread=spread), tuple(futures)

    def digest(self) -> dict[str, Any]:
        return {"blocks": tokenize([getattr(block, "parts", block) for block in self.blocks])}


def _spread(client: Client, keys: Sequence[Any], n_workers: int) -> float:
    """Return how many times an equal share of results the worker with most of them has: Dask places tasks as it likes.

    Results that were lost meanwhile are computed again anywhere, and count as placed equally.
    """
    holders = ask_scheduler(client, "who_has", keys=list(keys))
    most = Counter(address for found in holders.values() for address in found).most_common(1)
    return max(1.0, most[0][1] * n_workers / len(keys)) if most else 1.0


class BlockRows(Rows):
    """The rows of a :class:`BlockSource`; the last few blocks are cached."""

    def __init__(self, source: BlockSource, dtype: str) -> None:
        info = source.info
        self.n_rows, self.n_features, self.n_targets = info.n_rows, info.n_features, info.n_targets
        self.chunk_rows = max(source.sizes)
        if source.whole_blocks and any(size != self.chunk_rows for size in source.sizes[:-1]):
            self.chunk_edges = ChunkEdges(source.sizes)
        self.task = info.task  # type: ignore[assignment]
        self.classes, self.has_weight = info.classes, source.has_weight
        self.dtype = np.dtype(dtype)
        self.n_stored = info.n_stored
        self._blocks, self._scaling = source.blocks, info.scaling
        self._starts: IntArray = np.concatenate([[0], np.cumsum(source.sizes)]).astype(np.int64)
        self._cache: OrderedDict[int, Triple] = OrderedDict()
        self._lock = threading.Lock()

    def _read_features(self, start: int, stop: int) -> HostArray:
        return self._scaling.apply(self._join(start, stop, lambda triple: triple[0]), self.dtype)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[1])

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[2]).astype(np.float64, copy=False)

    def _join(self, start: int, stop: int, pick: Callable[[Triple], HostArray | None]) -> HostArray:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        while start < stop:
            end = min(stop, int(self._starts[first + 1]))
            part = pick(self._block(first))
            if part is None:
                raise DataError("targets or weights were read from rows that have none; pass them together with X")
            offset = int(self._starts[first])
            parts.append(part[start - offset : end - offset])
            start, first = end, first + 1
        if len(parts) == 1:
            return parts[0]
        return stack_rows(parts) if is_sparse(parts[0]) else np.concatenate(parts)

    def _block(self, number: int) -> Triple:
        with self._lock:
            if number in self._cache:
                self._cache.move_to_end(number)
                return self._cache[number]
        block = self._blocks[number]
        triple: Triple = block.fetch() if isinstance(block, RemoteValue) else block()
        check_finite(triple[0], int(self._starts[number]))
        with self._lock:
            self._cache[number] = triple
            while len(self._cache) > _CACHED_BLOCKS:
                self._cache.popitem(last=False)
        return triple

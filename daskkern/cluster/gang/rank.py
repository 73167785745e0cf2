"""One rank of a gang: a Dask task that leaves the worker's thread pool, runs, and reports how it ended."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dask.utils import funcname
from distributed import Worker, get_worker, secede
from distributed.protocol import pickle

from daskkern.backend.allocator import ReusedMemory
from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import SharedThreadLimit
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.mailbox import RUNNING, WAITING, Mailbox
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.cluster.gang.starting import EARLIER_RANK_S
from daskkern.cluster.gang.worker_logs import LOG, logged_as
from daskkern.cluster.gang.worker_plugin import await_task, registry_of
from daskkern.errors import ClusterError, CommunicatorClosedError, DaskkernError
from daskkern.events import BatchFinished, Event, silent, to_message

RankMain: TypeAlias = Callable[[Communicator, Any, RankContext], Any]
"""``rank_main(communicator, payload, context) -> result``, a function that workers can import."""

_BATCH_INTERVAL_S = 0.5
_LAST_S = 60.0
"""How much later than the supervisor a rank gives up its peers."""


@dataclass(frozen=True)
class RankOrder:
    """The order to a rank, in addition to its payload."""

    fit: str
    generation: int
    rank: int
    topic: str
    collective_timeout_s: float
    start_timeout_s: float
    drain_s: float


@dataclass(frozen=True)
class PerRank:
    """A separate payload for each rank, in rank order."""

    payloads: tuple[Any, ...]


def payloads_for(payload: Any, size: int) -> tuple[Any, ...]:
    """Return the payload of each of `size` ranks. Raises ClusterError when a PerRank has another number of them."""
    if not isinstance(payload, PerRank):
        return (payload,) * size
    if len(payload.payloads) != size:
        raise ClusterError(f"got {len(payload.payloads)} payloads for {size} ranks; expected one for each")
    return tuple(payload.payloads)


@dataclass(frozen=True)
class RankResult:
    """The result of a rank that returned."""

    value: Any


@dataclass(frozen=True)
class RankFailure:
    """The failure of a rank. `secondary` means that it was aborted, or found a peer gone: the cause lies elsewhere."""

    error: DaskkernError
    secondary: bool


def run_rank(rank_main: RankMain, payload: Any, order: RankOrder) -> RankResult | RankFailure:
    """Run `rank_main` as rank `order.rank` of its gang. The body of a rank's task; never raises an Exception.

    A failure is returned and not raised: an erred task keeps its traceback, and with it every array of the
    rank's frames, alive on the worker until the last future is gone.
    """
    secede()  # frees the thread for ordinary tasks: a fit takes hours
    worker = get_worker()
    with logged_as(order.fit, f"rank {order.rank}", worker.address):
        LOG.info("generation %d: the task of the rank has begun", order.generation)
        result = _run(worker, rank_main, payload, order)
        if isinstance(result, RankResult):
            LOG.info("generation %d: the rank has returned", order.generation)
        else:
            level = logging.INFO if result.secondary else logging.ERROR
            LOG.log(level, "generation %d: %s", order.generation, "\n".join([str(result.error), *_notes(result.error)]))
        return result


def _notes(error: DaskkernError) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _run(worker: Worker, rank_main: RankMain, payload: Any, order: RankOrder) -> RankResult | RankFailure:
    registry = registry_of(worker)
    mailbox, cache = registry.find(order.fit, order.generation), registry.commit_caches.get(order.fit)
    if mailbox is None or cache is None:
        return RankFailure(
            ClusterError(f"worker {worker.address} was restarted and has lost rank {order.rank} of this fit"),
            secondary=True,
        )
    await_task(worker, order.drain_s)
    communicator = DaskCommunicator(PeerTransport(worker, mailbox, order.collective_timeout_s))
    sender = _EventSender(worker, order.topic)
    context = RankContext(
        emit=sender if order.rank == 0 else silent,
        should_stop=lambda: mailbox.stop_requested or mailbox.reason is not None,
        should_regroup=lambda: mailbox.regroup_requested,
        commit_cache=cache.of_generation(order.generation),
        report=sender,
        worker=worker.address,
    )

    def wait() -> None:
        mailbox.state = WAITING

    try:
        with registry.slots.held(order.fit, lambda: mailbox.reason, wait):
            mailbox.state = RUNNING
            _start(communicator, mailbox, order.start_timeout_s + EARLIER_RANK_S + _LAST_S)
            with _THREADS.limited_to(worker.state.nthreads), _MEMORY.held():
                value = rank_main(communicator, payload, context)
        return RankResult(value)
    except BaseException as error:  # a SystemExit, too, must not leave the peers waiting
        secondary = isinstance(error, CommunicatorClosedError) and mailbox.reason is not None
        communicator.abort(f"rank {order.rank} at {worker.address} failed: {type(error).__name__}: {error}")
        return RankFailure(_described(error, order.rank, worker.address, funcname(rank_main)), secondary)
    finally:
        communicator.close()
        worker.loop.add_callback(registry.close, order.fit, order.generation)


def _start(communicator: DaskCommunicator, mailbox: Mailbox, timeout_s: float) -> None:
    """Wait for all ranks. The supervisor forms another gang before `timeout_s` has passed: if it has not, no retry
    would help."""
    try:
        communicator.start(timeout_s)
    except CommunicatorClosedError as error:
        if mailbox.reason is not None:
            raise
        raise ClusterError(str(error)) from None


def _described(error: BaseException, rank: int, address: str, name: str) -> DaskkernError:
    """Return `error` in a form that can be pickled: itself if it is daskkern's, else a ClusterError with its text."""
    text = "".join(traceback.format_exception(error))
    described = error if isinstance(error, DaskkernError) and _travels(error) else None
    if described is None:
        described = ClusterError(f"{name} failed on rank {rank} at {address}: {type(error).__name__}: {error}")
    described = described.with_traceback(None)
    described.__cause__ = described.__context__ = None
    described.add_note(f"On rank {rank} at {address}:\n{text}")
    return described


def _travels(error: DaskkernError) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # a class made in a function, an argument that cannot be pickled
        return False
    return True


class _EventSender:
    """Sends a rank's events to the subscribers of the fit's topic; events of batches at most twice a second.

    The last batch before another kind of event is always sent, so that a progress bar reaches its end.
    """

    def __init__(self, worker: Worker, topic: str) -> None:
        self._worker = worker
        self._topic = topic
        self._sent_at = -_BATCH_INTERVAL_S
        self._held: BatchFinished | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchFinished):
            now = time.monotonic()
            if now - self._sent_at < _BATCH_INTERVAL_S:
                self._held = event
                return
            self._sent_at = now
        elif self._held is not None:
            self._send(self._held)
        self._held = None
        self._send(event)

    def _send(self, event: Event) -> None:
        self._worker.log_event(self._topic, to_message(event))


_THREADS, _MEMORY = SharedThreadLimit(), ReusedMemory()

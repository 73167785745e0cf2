"""The task that starts the ranks of a gang, watches them and the cluster, and says how it ended.

It runs on a worker and not in the client, so that a fit can outlive the process that submitted it. The ranks
belong to it: when it goes, the scheduler releases them, and they end.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import queue
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future, Worker, get_client, get_worker, secede

from daskkern.cluster.membership import live_workers
from daskkern.cluster.rank import RankFailure, RankMain, RankOrder, RankResult, run_rank
from daskkern.errors import ClusterError, CommunicatorClosedError, DaskkernError

_TICK_S = 0.05
_MEMBERSHIP_S = 0.25
"""How often the scheduler is asked who is alive. A future never says: the task of a lost worker just waits."""

_CAUSE_S = 3.0
"""How long to look for a cause when a rank only noticed that a peer is silent."""

_DRAIN_S = 10.0
"""How long aborted ranks are waited for. One that is deep in a matrix product cannot be interrupted."""

_RPC_S = 10.0
_PRIORITY = 10

STARTED = {"gang": "started"}
"""What the supervisor publishes on the fit's topic once its ranks are submitted."""


@dataclass(frozen=True)
class GangOrder:
    """What the supervisor is told: the fit, its members, and its deadlines."""

    fit: str
    name: str
    topic: str
    addresses: tuple[str, ...]
    collective_timeout_s: float
    start_timeout_s: float

    def key(self, role: str, number: int, epoch: int = 0) -> str:
        """Return a task key that the dashboard groups as ``daskkern_<name>-<role>``."""
        return f"daskkern_{re.sub('[^0-9A-Za-z]+', '_', self.name)}-{role}-{number}-{self.fit}-{epoch}"


@dataclass(frozen=True)
class GangReport:
    """How a gang ended: the ranks' results in rank order, or the error that the caller shall see."""

    values: tuple[Any, ...] = ()
    error: DaskkernError | None = None


def supervise(rank_main: RankMain, payloads: Sequence[Any], order: GangOrder) -> GangReport:
    """Run a gang to its end. The body of the supervisor's task."""
    secede()
    worker = get_worker()
    epoch = _Epoch(worker, get_client(), order, number=0)
    # A re-formed gang is another _Epoch with the next number and other addresses: every message is fenced.
    try:
        epoch.start(rank_main, payloads)
        worker.log_event(order.topic, STARTED)
        return epoch.watch()
    except DaskkernError as error:
        return GangReport(error=error.with_traceback(None))
    finally:
        with suppress(ClusterError, OSError, RuntimeError):  # without a scheduler, the workers end by themselves
            epoch.end()


@dataclass
class _Epoch:
    """One formation of the gang, from the opening of its mailboxes to their closing."""

    worker: Worker
    client: Client
    order: GangOrder
    number: int
    futures: list[Future[Any]] = field(default_factory=list)
    values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, RankFailure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._task = str(self.worker.get_current_task())
        self._result_s = _RPC_S

    def start(self, rank_main: RankMain, payloads: Sequence[Any]) -> None:
        """Open the mailboxes on all members, then submit the ranks."""
        order = self.order
        keys = [order.key("rank", rank, self.number) for rank in range(len(order.addresses))]
        self._open(keys)
        for rank, (address, key) in enumerate(zip(order.addresses, keys, strict=True)):
            rank_order = RankOrder(
                order.fit, self.number, rank, order.topic, order.collective_timeout_s, order.start_timeout_s
            )
            future = self.client.submit(
                run_rank,
                rank_main,
                payloads[rank],
                rank_order,
                key=key,
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                priority=_PRIORITY,
            )
            self.futures.append(future)
            future.add_done_callback(lambda _, rank=rank: self._finished.put(rank))

    def watch(self) -> GangReport:
        """Wait until every rank has returned, or one has failed or is lost."""
        next_look = 0.0
        while len(self.values) < len(self.futures) and not self.failures:
            self._collect(_TICK_S)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _MEMBERSHIP_S
                lost = self._lost()
                if lost:
                    return self._give_up(_loss(self.order.name, lost))
            if self._unwanted():
                return self._give_up(ClusterError(f"fit '{self.order.name}' was cancelled"))
        if self.failures:
            return self._give_up(self._cause())
        return GangReport(tuple(self.values[rank] for rank in range(len(self.futures))))

    def end(self) -> None:
        """Release the ranks and their mailboxes. A rank that still runs is aborted by the release of its task."""
        self.client.cancel(self.futures)
        self._tell_survivors("close")

    def _collect(self, timeout_s: float) -> None:
        """File the outcome of a rank that has finished within `timeout_s`, if one has."""
        try:
            rank = self._finished.get(timeout=timeout_s)
        except queue.Empty:
            return
        future, address = self.futures[rank], self.order.addresses[rank]
        try:
            outcome = future.result(timeout=self._result_s)
        except TimeoutError:  # a large result, or its worker went with it: membership will tell
            self._result_s *= 2
            self._finished.put(rank)
        except BaseException as error:  # cancelled, or its code cannot be imported there
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.failures[rank] = RankFailure(
                ClusterError(f"rank {rank} could not run at {address}: {type(error).__name__}: {error}"),
                hearsay=future.status in ("cancelled", "lost"),
            )
        else:
            if isinstance(outcome, RankResult):
                self.values[rank] = outcome.value
            else:
                self.failures[rank] = outcome

    def _lost(self) -> dict[int, str]:
        """Return the members, by rank, that the scheduler no longer counts as alive and that have not returned."""
        alive = live_workers(self.client)
        return {
            rank: address
            for rank, address in enumerate(self.order.addresses)
            if address not in alive and rank not in self.values
        }

    def _unwanted(self) -> bool:
        """Return whether nobody waits for this supervisor any more: its future was released."""
        task = self.worker.state.tasks.get(self._task)
        return task is None or task.state not in ("executing", "long-running")

    def _cause(self) -> DaskkernError:
        """Return what went wrong first: a lost worker or a rank's own error, not the silence that it left."""
        deadline = time.monotonic() + _CAUSE_S
        while True:
            lost = self._lost()
            own = [failure.error for _, failure in sorted(self.failures.items()) if not failure.hearsay]
            raised = [error for error in own if not isinstance(error, CommunicatorClosedError)]
            if raised:
                return raised[0]
            if lost:
                return _loss(self.order.name, lost)
            if own:
                return own[0]
            if time.monotonic() > deadline:
                return self.failures[min(self.failures)].error
            self._collect(_TICK_S)

    def _give_up(self, error: DaskkernError) -> GangReport:
        """Abort all ranks, give them time to notice, and report `error`."""
        self._tell_survivors("abort", reason=str(error))
        deadline = time.monotonic() + _DRAIN_S
        gone = set(self._lost())
        while time.monotonic() < deadline and not self._unwanted():
            if len(self.values.keys() | self.failures.keys() | gone) == len(self.futures):
                break
            self._collect(_TICK_S)
            gone = set(self._lost())
        return GangReport(error=error)

    def _open(self, keys: Sequence[str]) -> None:
        """Open the mailboxes of all members. They must all be there before the first rank sends anything."""
        addresses = self.order.addresses
        messages = [{"rank": rank, "addresses": addresses, "task": key} for rank, key in enumerate(keys)]
        for address, error in self._tell("open", dict(zip(addresses, messages, strict=True))).items():
            raise ClusterError(
                f"worker {address} cannot be reached from {self.worker.address} ({error!r}); workers must be "
                "able to connect to each other: see the network, or restart that worker"
            )

    def _tell_survivors(self, verb: str, **message: Any) -> None:
        """Send `message` to the members that are alive: Dask tries a dead address for many seconds."""
        alive = live_workers(self.client)
        self._tell(verb, {address: message for address in self.order.addresses if address in alive})

    def _tell(self, verb: str, messages: Mapping[str, dict[str, Any]]) -> dict[str, Exception]:
        """Send each address its message, all at the same time, and return what went wrong where."""
        errors: dict[str, Exception] = {}

        async def send(address: str, message: dict[str, Any]) -> None:
            call = getattr(self.worker.rpc(address), f"daskkern_{verb}")
            try:
                await asyncio.wait_for(call(fit=self.order.fit, epoch=self.number, **message), _RPC_S)
            except Exception as error:
                errors[address] = error

        async def send_all() -> None:
            await asyncio.gather(*(send(address, message) for address, message in messages.items()))

        self.client.sync(send_all)
        return errors


def _loss(name: str, lost: dict[int, str]) -> ClusterError:
    members = ", ".join(f"{address} (rank {rank})" for rank, address in lost.items())
    noun = "worker" if len(lost) == 1 else "workers"
    return ClusterError(
        f"{noun} {members} left the cluster while fit '{name}' was running: killed, out of memory, retired or "
        "cut off; see the worker's log, give it more memory if that was the reason, and fit again"
    )

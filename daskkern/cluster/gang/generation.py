"""One formation of a gang: opens its mailboxes, runs its ranks, and watches them until it ends or breaks."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import queue
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Future, Worker

from daskkern.cluster.gang.calls import Answers, call_workers
from daskkern.cluster.gang.departure import is_unwanted
from daskkern.cluster.gang.growth import GrowthPolicy
from daskkern.cluster.gang.members import Members
from daskkern.cluster.gang.rank import RankFailure, RankMain, RankOrder, RankResult, run_rank
from daskkern.cluster.gang.rank_context import Regroup
from daskkern.cluster.gang.regrouping import Regrouping
from daskkern.cluster.gang.starting import StartWatch
from daskkern.errors import ClusterError, CommunicatorClosedError, DaskkernError

_TICK_S = 0.05
_MEMBERSHIP_S = 0.25
"""Interval between queries for live workers. Futures do not show a loss: the task of a lost worker just waits."""

_CAUSE_S = 3.0
"""How long to look for a cause when a rank only noticed that a peer is silent."""

_DRAIN_S = 10.0
"""How long aborted ranks are waited for. One that is deep in a matrix product cannot be interrupted."""

_RPC_S = 10.0
_PRIORITY = 10


@dataclass(frozen=True)
class GangOrder:
    """The order to a supervisor: the fit, its members, its deadlines, and the number of retries.

    The times are those of :class:`daskkern.cluster.gang.gang.GangSettings`.
    """

    fit: str
    name: str
    topic: str
    addresses: tuple[str, ...]
    allowed: tuple[str, ...] | None
    most: int | None
    collective_timeout_s: float
    start_timeout_s: float
    silence_s: float
    rejoin_s: float
    idle_s: float
    retries: int
    elastic: bool
    drain_s: float
    attempt: str
    """Distinguishes the tasks of this gang from those that another process formed for the same fit."""
    obstacle: str = ""
    """Why the fit cannot be preempted, in a few words; "" if it can."""

    def key(self, role: str, number: int, generation: int = 0) -> str:
        """Return a task key that the dashboard groups as ``daskkern_<name>-<role>``."""
        name = re.sub("[^0-9A-Za-z]+", "_", self.name)
        return f"daskkern_{name}-{role}-{number}-{self.fit}-{self.attempt}-{generation}"


@dataclass(frozen=True)
class Outcome:
    """How a generation ended: with the ranks' values in rank order, or with an error.

    `broken` means that the error lies in the cluster, so that another gang may succeed; `left_out` are the workers that
    must not belong to it; `regroups` means that the ranks committed and returned, because workers have joined, those of
    `leaving` are about to leave, or some are to be handed over to the fit `preempted_for`; `superseded` that another
    supervisor has begun a later generation.
    """

    values: tuple[Any, ...] = ()
    error: DaskkernError | None = None
    broken: bool = False
    left_out: tuple[str, ...] = ()
    regroups: bool = False
    leaving: frozenset[str] = frozenset()
    preempted_for: str = ""
    superseded: bool = False


@dataclass
class Generation:
    """One formation of the gang, from the opening of its mailboxes to their closing.

    Every message carries a fencing token: a message of another generation is dropped.
    """

    worker: Worker
    client: Client
    order: GangOrder
    members: Members
    addresses: tuple[str, ...]
    number: int
    growth: GrowthPolicy = field(default_factory=GrowthPolicy)
    futures: list[Future[Any]] = field(default_factory=list)
    values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, RankFailure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._task = str(self.worker.get_current_task())
        self._result_s = _RPC_S
        self._regrouping = Regrouping(self.order, self.members, self.addresses, self.worker.address, self.growth)
        self._starts = StartWatch(self.order.start_timeout_s, self.addresses, self._states)

    def start(self, rank_main: RankMain, payloads: Sequence[Any]) -> Outcome | None:
        """Open the mailboxes on all members, then submit the ranks. Returns an outcome when that cannot be done."""
        order = self.order
        keys = [order.key("rank", rank, self.number) for rank in range(len(self.addresses))]
        hindrance = self._open(keys)
        if hindrance is not None:
            return hindrance
        for rank, (address, key) in enumerate(zip(self.addresses, keys, strict=True)):
            rank_order = RankOrder(
                order.fit,
                self.number,
                rank,
                order.topic,
                order.collective_timeout_s,
                order.start_timeout_s,
                order.drain_s,
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
        return None

    def watch(self) -> Outcome:
        """Wait until every rank has returned, or one has failed or is lost."""
        next_look = 0.0
        while len(self.values) < len(self.futures) and not self.failures:
            self._collect(_TICK_S)
            if time.monotonic() >= next_look:
                begun = time.monotonic()
                lost = self._lost()
                if lost:
                    self.members.drop(lost.values())
                    return self._give_up(self._loss(lost), broken=True)
                if self._regrouping.due():
                    self._send_to_survivors("regroup")
                next_look = time.monotonic() + _MEMBERSHIP_S
                self._starts.postpone(time.monotonic() - begun)
            late = self._starts.late()
            if late:
                return self._leave_out(late)
            if self.unwanted():
                return self._give_up(ClusterError(f"fit '{self.order.name}' was cancelled"))
        if self.failures:
            error, broken = self._cause()
            return self._give_up(error, broken=broken)
        values = tuple(self.values[rank] for rank in range(len(self.futures)))
        regroups = any(isinstance(value, Regroup) for value in values)
        why = self._regrouping
        return Outcome(values, regroups=regroups, leaving=why.leaving, preempted_for=why.preempted_for)

    def end(self) -> None:
        """Release the ranks and their mailboxes. A rank that still runs is aborted by the release of its task."""
        self.client.cancel(self.futures)
        self._send_to_survivors("close")

    def unwanted(self) -> bool:
        """Return whether the future of this supervisor was released, so that no client waits for it any more."""
        return is_unwanted(self.worker, self._task)

    def _collect(self, timeout_s: float) -> None:
        """Record the outcome of a rank that finishes within `timeout_s`, if any."""
        try:
            rank = self._finished.get(timeout=timeout_s)
        except queue.Empty:
            return
        future, address = self.futures[rank], self.addresses[rank]
        try:
            outcome = future.result(timeout=self._result_s)
        except TimeoutError:  # a large result, or its worker was lost with it: membership will show
            self._result_s *= 2
            self._finished.put(rank)
        except BaseException as error:  # cancelled, or its code cannot be imported there
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.failures[rank] = RankFailure(
                ClusterError(f"rank {rank} could not run at {address}: {type(error).__name__}: {error}"),
                secondary=future.status in ("cancelled", "lost"),
            )
        else:
            if isinstance(outcome, RankResult):
                self.values[rank] = outcome.value
            else:
                self.failures[rank] = outcome

    def _lost(self) -> dict[int, str]:
        """Return the members, by rank, that are gone, silent or not waited for, and whose rank has not returned."""
        lost = self.members.lost(self.addresses) | self._regrouping.overdue()
        return {rank: address for rank, address in lost.items() if rank not in self.values}

    def _cause(self) -> tuple[DaskkernError, bool]:
        """Return the first error, and whether its cause is in the cluster.

        A lost worker or a rank's own error takes precedence over the timeouts that either causes.
        """
        deadline = time.monotonic() + _CAUSE_S
        while True:
            lost = self._lost()
            own = [failure.error for _, failure in sorted(self.failures.items()) if not failure.secondary]
            raised = [error for error in own if not isinstance(error, CommunicatorClosedError)]
            if lost:
                self.members.drop(lost.values())
                return self._loss(lost), True
            if raised:
                return raised[0], False
            if own:
                return own[0], True
            if time.monotonic() > deadline:
                return self.failures[min(self.failures)].error, True
            self._collect(_TICK_S)

    def _leave_out(self, late: Mapping[int, str]) -> Outcome:
        """Give up, because the workers of `late` have not started their ranks."""
        problem = ClusterError(
            f"{_named(late)} did not start in fit '{self.order.name}' within {self.order.start_timeout_s:g} s, busy "
            "with other tasks or paused for memory; see the worker's log, or raise start_timeout_s"
        )
        return replace(self._give_up(problem, broken=True, absent=late), left_out=tuple(late.values()))

    def _states(self, addresses: Sequence[str]) -> Answers:
        return self._send("state", {address: {} for address in addresses})

    def _give_up(self, error: DaskkernError, *, broken: bool = False, absent: Collection[int] = ()) -> Outcome:
        """Abort all ranks, give them time to notice, except for the `absent` ones, and report `error`."""
        self._send_to_survivors("abort", reason=str(error))
        deadline = time.monotonic() + _DRAIN_S
        gone = set(self._lost())
        while time.monotonic() < deadline and not self.unwanted():
            if len(self.values.keys() | self.failures.keys() | gone | set(absent)) == len(self.futures):
                break
            self._collect(_TICK_S)
            gone = set(self._lost())
        return Outcome(error=error, broken=broken)

    def _open(self, keys: Sequence[str]) -> Outcome | None:
        """Open the mailboxes of all members. All must exist before the first rank sends anything."""
        messages = [{"rank": rank, "addresses": self.addresses, "task": key} for rank, key in enumerate(keys)]
        answers = self._send("open", dict(zip(self.addresses, messages, strict=True)))
        if False in answers.values.values():
            return Outcome(superseded=True)
        for address, answer in answers.values.items():
            if answer is not True:  # Dask's answer for a missing handler
                answers.errors[address] = ClusterError("it has no daskkern handlers yet")
        for address, error in answers.errors.items():
            problem = ClusterError(
                f"worker {address} cannot be reached from {self.worker.address} ({error!r}); workers must be "
                "able to connect to each other: see the network, or restart that worker"
            )
            return Outcome(error=problem, broken=True)
        return None

    def _send_to_survivors(self, verb: str, **message: Any) -> None:
        """Send `message` to the members that are alive: Dask tries a dead address for many seconds."""
        alive, unresponsive = self.members.look()
        self._send(verb, {a: message for a in self.addresses if a in alive and a not in unresponsive})

    def _send(self, verb: str, messages: Mapping[str, dict[str, Any]]) -> Answers:
        """Send each address its message with the fencing token, and return the answers."""
        fence = {"fit": self.order.fit, "generation": self.number}
        fenced = {address: {**fence, **message} for address, message in messages.items()}
        return call_workers(self.worker, self.client, verb, fenced, _RPC_S)

    def _loss(self, lost: dict[int, str]) -> ClusterError:
        return ClusterError(
            f"{_named(lost)} left the cluster while fit '{self.order.name}' was running: killed, out of memory, "
            "retired or cut off; see the worker's log, give it more memory if that was the reason, and fit again"
        )


def _named(members: Mapping[int, str]) -> str:
    names = ", ".join(f"{address} (rank {rank})" for rank, address in members.items())
    return f"{'worker' if len(members) == 1 else 'workers'} {names}"

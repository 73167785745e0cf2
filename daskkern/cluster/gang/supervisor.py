"""The task that forms the gang of a fit, watches it and the cluster, and re-forms it when workers come or go.

It runs on a worker and not in the client, so that a fit can outlive the process that submitted it. The ranks
belong to it: when it ends, the scheduler releases them, and they end. When its worker is lost, the scheduler runs it
again on another, where it finds out which generation was the last, and continues with the next one.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from distributed import Client, Reschedule, Worker, get_worker, secede

from daskkern.cluster.connect.connecting import own_client
from daskkern.cluster.connect.membership import NOTICE_S, BrokenOffError, has_left
from daskkern.cluster.connect.supervisor_deaths import clear_suspicion
from daskkern.cluster.gang.departure import departure_of, is_unwanted
from daskkern.cluster.gang.generation import GangOrder, Generation, Outcome
from daskkern.cluster.gang.growth import GrowthPolicy
from daskkern.cluster.gang.heartbeats import HeartbeatMonitor
from daskkern.cluster.gang.members import Members
from daskkern.cluster.gang.rank import PerRank, RankMain, payloads_for
from daskkern.cluster.gang.regrouping import TakenOverError, await_workers, taken_over
from daskkern.cluster.gang.worker_logs import LOG, logged_as
from daskkern.cluster.gang.worker_plugin import await_task
from daskkern.cluster.scheduler.fits import STARTED
from daskkern.errors import ClusterError, DaskkernError, MemoryBudgetError
from daskkern.events import Event, FitPreempted, StageFinished, WorkersJoined, WorkersLeft, WorkersLost, to_message

Reform: TypeAlias = Callable[[Client, tuple[str, ...], Any], Any]
"""``reform(client, addresses, payload) -> payload`` for a gang of other workers; raises DaskkernError when they
cannot run it."""


@dataclass(frozen=True)
class GangReport:
    """How a gang ended: the ranks' results in rank order, or the error to raise in the caller."""

    values: tuple[Any, ...] = ()
    error: DaskkernError | None = None


def supervise(rank_main: RankMain, payload: Any, order: GangOrder, reform: Reform | None) -> GangReport:
    """Run a fit to its end. The body of the supervisor's task."""
    secede()
    worker, client = get_worker(), own_client()
    await_task(worker, order.drain_s)
    members = Members(
        worker, client, order.fit, order.allowed, order.most, HeartbeatMonitor(order.silence_s, worker.address)
    )
    watch = _Supervision(worker, client, order, members, rank_main, payload, reform)
    with logged_as(order.fit, "supervisor", worker.address):
        return _watched(watch)


def _watched(watch: "_Supervision") -> GangReport:
    try:
        return watch.run()
    except TakenOverError as error:
        return GangReport(error=error.with_traceback(None))
    except DaskkernError as error:
        watch.forget()
        return GangReport(error=error.with_traceback(None))
    except Reschedule:
        raise
    except BaseException:
        watch.forget()
        raise


class _Supervision:
    """One supervisor: generation after generation."""

    def __init__(
        self,
        worker: Worker,
        client: Client,
        order: GangOrder,
        members: Members,
        rank_main: RankMain,
        payload: Any,
        reform: Reform | None,
    ) -> None:
        self._worker, self._client, self._order, self._members = worker, client, order, members
        self._rank_main, self._payload, self._reform = rank_main, payload, reform
        self._number = -1
        self._growth = GrowthPolicy()

    def run(self) -> GangReport:
        """Form gangs until one ends, or too many in a row have broken without a commit."""
        order = self._order
        number, addresses = self._members.progress().generation + 1, order.addresses
        self._number = number
        left = self._members.handed_over(number - 1) if number > 0 else None
        if self._members.suspended():
            addresses = self._workers_again()
        elif left is not None:
            addresses = self._grown(left)
        elif number > 0:
            name = order.name
            loss = ClusterError(f"the worker that supervised fit '{name}' left the cluster or hangs; see its log")
            self._count(loss, number)
            addresses = self._gather_again(addresses)
        elif self._may_shrink and self._members.paused(addresses):
            addresses = self._gather_again(addresses)
        while True:
            outcome, wanted = self._one(number, addresses)
            if outcome.superseded:
                raise taken_over(order.name)
            if not wanted or not (outcome.broken or outcome.regroups):
                self.forget()
                return GangReport(outcome.values, outcome.error)
            if outcome.regroups:
                addresses = self._regrouped(addresses, outcome)
            elif outcome.left_out:
                addresses = self._without(addresses, outcome)
            else:
                assert outcome.error is not None
                self._count(outcome.error, number + 1)
                addresses = self._gather_again(addresses)
            number += 1
            self._number = number

    def _regrouped(self, before: tuple[str, ...], outcome: Outcome) -> tuple[str, ...]:
        """Return the next gang after one that has committed. Raises Reschedule if this worker itself is leaving."""
        leaving = outcome.leaving
        if outcome.preempted_for:
            before = self._handed_over(before, outcome.preempted_for)
            leaving = leaving.intersection((*before, self._worker.address))
            if not leaving:
                return before
        if not leaving:
            self._growth.grown()
            addresses = self._grown(before)
            if set(addresses) - set(before):
                self._publish(WorkersJoined(len(addresses)))
            return addresses
        rest = tuple(address for address in before if address not in leaving)
        self._publish(WorkersLeft(len(rest), departure_of(leaving)))
        if self._worker.address in leaving:
            self._members.hand_over(self._number, rest)
            raise Reschedule
        return self._grown(rest)

    def _handed_over(self, before: tuple[str, ...], to: str) -> tuple[str, ...]:
        """Hand workers over to the fit `to`, and return the next gang: on the rest, or on others after a wait."""
        rest = self._members.hand_workers_over(whole=False)
        if rest is None:
            raise taken_over(self._order.name)
        if rest == before:  # the other fit needs them no longer
            return before
        reason = f"fit {to} of a higher priority gets"
        if rest:
            self._publish(WorkersLeft(len(rest), f"{reason} {len(before) - len(rest)} of the workers"))
            if self._hindrance(rest) is None:
                return rest
            self._members.hand_workers_over(whole=True)
        self._publish(FitPreempted(f"{reason} the workers"))
        return self._workers_again()

    def _workers_again(self) -> tuple[str, ...]:
        """Return the next gang of a preempted fit, when it has workers again."""

        def check() -> None:
            self._members.look()
            if self._worker.address in self._members.leaving:
                self._members.hand_over(self._number, ())
                raise Reschedule
            if is_unwanted(self._worker, str(self._worker.get_current_task())):
                raise ClusterError(f"fit '{self._order.name}' was cancelled")

        return self._grown(await_workers(self._members, self._order, check))

    def _form(self, addresses: tuple[str, ...]) -> None:
        """Make the payload for a gang on these workers. Raises what hinders them."""
        if self._reform is not None:
            self._payload = self._reform(self._client, addresses, self._payload)

    def _hindrance(self, addresses: tuple[str, ...]) -> Exception | None:
        """Make the payload for a gang on these workers; return why they cannot run it, None if they can."""
        try:
            self._form(addresses)
        except Exception as error:  # too little memory, or lost again
            return error
        return None

    @property
    def _may_shrink(self) -> bool:
        return self._order.retries > 0 and not isinstance(self._payload, PerRank)

    def _without(self, before: tuple[str, ...], outcome: Outcome) -> tuple[str, ...]:
        """Return the next gang, without the workers that `outcome` leaves out. Raises its error if none is left."""
        assert outcome.error is not None
        rest = tuple(address for address in before if address not in outcome.left_out)
        if not rest or not self._may_shrink:
            raise outcome.error
        self._members.rejected |= set(outcome.left_out)
        self._leave_out(str(outcome.error))
        return self._gather_again(rest)

    def _without_small(self, addresses: tuple[str, ...], error: MemoryBudgetError) -> tuple[str, ...]:
        """Return the workers but those that `error` says are too small, which are excluded. Raises it if none is."""
        if not error.too_small or not self._may_shrink:
            raise error
        self._members.exclude(error.too_small, error.for_now)
        for sentence in error.too_small.values():
            self._leave_out(sentence)
        return tuple(address for address in addresses if address not in error.too_small)

    def _leave_out(self, reason: str) -> None:
        self._publish(StageFinished("workers", 0.0, f"{reason}; the fit goes on without it"))

    def forget(self) -> None:
        """Let the workers forget the fit, unless a later generation than this supervisor's last one has begun."""
        with suppress(ClusterError, OSError, RuntimeError):
            self._members.forget(self._number)

    def _one(self, number: int, addresses: tuple[str, ...]) -> tuple[Outcome, bool]:
        """Run one generation; return its outcome, and whether a client still waits for this supervisor."""
        payloads = payloads_for(self._payload, len(addresses))
        LOG.info("generation %d: ranks on %s", number, ", ".join(addresses))
        generation = Generation(self._worker, self._client, self._order, self._members, addresses, number, self._growth)
        # Before the mailboxes are opened, which takes long if a worker has been lost: the client waits for this one.
        self._worker.log_event(self._order.topic, {STARTED: self._worker.address})
        try:
            outcome = generation.start(self._rank_main, payloads)
            if outcome is None:
                outcome = generation.watch()
            return outcome, not generation.unwanted()
        finally:
            with suppress(ClusterError, OSError, RuntimeError):  # without a scheduler, the workers end by themselves
                generation.end()

    def _count(self, error: DaskkernError, number: int) -> None:
        """Count that generation `number` follows one that broke. Raises its error after too many without a commit."""
        committed = self._members.progress().committed
        attempt = number - max(committed, 0)
        if attempt > self._order.retries:
            raise error
        if committed >= 0 and attempt == 1:
            clear_suspicion(self._client, str(self._worker.get_current_task()))
        self._publish(WorkersLost(str(error), attempt))

    def _gather_again(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Return the addresses of the next gang, after making its payload for them."""
        order, attempts = self._order, 3
        while True:
            picked = self._members.gather(before, len(before), order.rejoin_s, order.idle_s)
            try:
                self._form(picked)
            except MemoryBudgetError as error:
                before = self._without_small(before, error)
            except Exception as error:  # a worker that is lost during a call raises many types
                attempts -= 1
                if not attempts:
                    raise ClusterError(f"the remaining workers do not answer: {error}; see their logs") from error
                if isinstance(error, BrokenOffError):
                    has_left(self._client, picked, NOTICE_S)
            else:
                break
        for address in set(self._members.paused(before)) - set(picked):
            self._leave_out(f"worker {address} is paused for memory")
        return picked

    def _grown(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Return the members with those that joined, or without them if these cannot run the payload."""
        picked = self._members.pick(before)
        if not picked or not self._members.take(picked):
            return self._gather_again(before)
        hindrance = self._hindrance(picked)
        if hindrance is None:
            return picked
        if isinstance(hindrance, MemoryBudgetError) and hindrance.too_small and self._may_shrink:
            return self._grown(self._without_small(before, hindrance))
        joined = sorted(set(picked) - set(before))
        self._members.rejected |= set(joined)
        for address in joined:
            self._leave_out(f"worker {address} cannot take part: {hindrance}")
        return self._gather_again(before)

    def _publish(self, event: Event) -> None:
        LOG.info("%s", event)
        self._worker.log_event(self._order.topic, to_message(event))

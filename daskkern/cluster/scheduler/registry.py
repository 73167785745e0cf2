"""The scheduler's registry of fits: which fit holds which workers, which fits wait, and the status of each.

Only the scheduler's event loop changes it. It sees the cluster as a list of places, so that it can be tested without
one.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from daskkern.cluster.scheduler.fits import (
    LOST,
    PREEMPTED,
    PREPARING,
    QUEUED,
    RECOVERING,
    SUBMITTED,
    FitRecord,
    Recall,
)
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.preemption import INTERVAL_S, Preemption
from daskkern.cluster.scheduler.sharing.quotas import Quotas
from daskkern.cluster.scheduler.sharing.requests import Place, Verdict, WorkerRequest
from daskkern.cluster.scheduler.sharing.waiting import waiting_in_words

_ENDED_KEPT = 200
_RECALL_S, _LONGEST_RECALL_S = 60.0, 3600.0
"""After how long a worker is offered again that had too little memory at the moment: at first, and at most."""
_UNHELD_S = 60.0
"""A fit that no process drives and whose driver the scheduler does not hold is lost after this long."""


class FitRegistry:
    """The records of fits, by identifier, their admission, and their preemption."""

    def __init__(self, quotas: Quotas | None = None, interval_s: float = INTERVAL_S) -> None:
        self.admission = Admission(quotas or Quotas())
        self.preemption = Preemption(self.admission, interval_s)
        self.records: dict[str, FitRecord] = {}
        self._unheld: dict[str, float] = {}

    def record(self, metadata: FitMetadata) -> FitRecord:
        """Return the record of a fit, creating it if needed. Of fits that have ended, the latest are kept."""
        if metadata.fit not in self.records:
            self.records[metadata.fit] = FitRecord(metadata)
        over = [fit for fit, record in self.records.items() if not record.active]
        for fit in over[: max(0, len(over) - _ENDED_KEPT)]:
            del self.records[fit]
        return self.records[metadata.fit]

    def holder(self, fit: str) -> str:
        """Return the client that holds `fit`, or "" for none."""
        return self.records[fit].client if fit in self.records else ""

    def active(self, fits: Sequence[str]) -> list[str]:
        """Return those of `fits` that are known and have not ended."""
        return [fit for fit in fits if fit in self.records and self.records[fit].active]

    def rival(self, metadata: FitMetadata) -> str:
        """Return the active fit that writes to the same place as `metadata`, or "" for none."""
        for fit, record in self.records.items():
            if fit != metadata.fit and record.active and metadata.out and record.metadata.out == metadata.out:
                return fit
        return ""

    def ask(
        self, metadata: FitMetadata, request: Mapping[str, Any], asker: str, places: Sequence[Place]
    ) -> dict[str, Any]:
        """Request workers: return their names, or what the fit waits for, or that it was stopped or refused.

        `asker` is the client that holds the fit from now on.
        """
        rival = self.rival(metadata)
        if rival:
            return {"rival": rival}
        record = self.record(metadata)
        record.client = asker
        if record.stop:
            self.admission.release(metadata.fit)
            return {"stop": record.stop}
        allowed = request.get("allowed")
        names = None if allowed is None else tuple(str(name) for name in allowed)
        n_ranks, memory = (None if request.get(key) is None else int(request[key]) for key in ("n_ranks", "memory"))
        refused = self.admission.quotas.of(metadata.user).refusal(metadata.user, n_ranks)
        if refused:
            return {"refused": refused}
        turn = metadata.priority, metadata.user, record.excluded
        requested = WorkerRequest(metadata.fit, record.submitted, n_ranks, names, memory, *turn)
        requested = requested.without((), places) or requested
        verdict = self.admission.ask(requested, places)
        self.preemption.update(places)
        for fit in self.admission.held:  # others may have been granted workers, too
            if self.records[fit].state == QUEUED:
                self.records[fit].state = PREPARING
        waits = PREEMPTED if metadata.fit in self.admission.suspended else QUEUED
        record.state = PREPARING if verdict.members else waits
        return self._answer(requested, verdict)

    def _answer(self, request: WorkerRequest, verdict: Verdict) -> dict[str, Any]:
        """Return a verdict as plain values, with the hand-overs that it requests of other fits."""
        preempted = [fit for fit, hand_over in self.preemption.requested.items() if hand_over.to == request.fit]
        return {
            "members": verdict.members,
            "ahead": verdict.ahead,
            "missing": verdict.missing,
            "quota": verdict.quota,
            "preempts": preempted,
            "obstacles": dict(self.preemption.obstacles(request.priority, verdict.ahead)),
        }

    def exclude(self, fit: str, small: Sequence[Place], places: Sequence[Place]) -> bool:
        """Take these workers from `fit`, see :meth:`Admission.exclude`."""
        if fit not in self.records or not self.admission.exclude(fit, small, places):
            return False
        self.records[fit].excluded = self.records[fit].excluded.union(small)
        self.preemption.update(places)
        return True

    def recall(self, fit: str, places: Sequence[Place], now: float) -> None:
        """Let excluded workers be offered again after a while: each time after twice as long, at most an hour."""
        recalls = self.records[fit].recalls
        for place in places:
            wait_s = min(2 * recalls[place].wait_s, _LONGEST_RECALL_S) if place in recalls else _RECALL_S
            recalls[place] = Recall(now + wait_s, wait_s)

    def readmit(self, now: float) -> None:
        """Offer workers again whose time has come."""
        for fit, record in self.records.items():
            due = {place for place, recall in record.recalls.items() if recall.time <= now} & record.excluded
            if record.active and due:
                record.excluded -= due
                self.admission.readmit(fit, due)

    def ended(self, fit: str, state: str, error: str) -> None:
        """Free the workers of `fit`, and record how it ended; "" records nothing yet."""
        self.admission.release(fit)
        if fit in self.records and state:
            self.records[fit].end(state, error)

    def stop(self, fit: str, abort: bool) -> bool:
        """Ask `fit` to end. Return False if it has ended."""
        record = self.records.get(fit)
        if record is None or not record.active:
            return False
        record.stop = "abort" if abort else record.stop or "stop"
        return True

    def hand_over(self, fit: str, generation: int, addresses: Sequence[str]) -> bool:
        """Record that a supervisor leaves after `generation` has committed, and the workers to continue with.

        Return False for an unknown fit.
        """
        if fit in self.records:
            self.records[fit].handed_over = int(generation), tuple(str(address) for address in addresses)
        return fit in self.records

    def handed_over(self, fit: str) -> tuple[int, tuple[str, ...]]:
        """Return what the last supervisor of `fit` that left has recorded; (-1, ()) for nothing."""
        return self.records[fit].handed_over if fit in self.records else (-1, ())

    def client_left(self, client: str) -> None:
        """Free what the fits of `client` hold. A detached fit will get a new driver, and keeps its place until then;
        others are lost."""
        for fit, record in self.records.items():
            if record.active and record.client == client:
                record.client = ""
                if record.metadata.detached:
                    record.state = RECOVERING
                else:
                    self.admission.release(fit)
                    record.end(LOST, "the process that submitted it has left the cluster")

    def tidy(self, clients: Collection[str], now: float) -> None:
        """Do what is due: to be called every few seconds. `clients` are the clients that are connected."""
        self.end_without_owner(clients, now)
        self.readmit(now)

    def end_without_owner(self, clients: Collection[str], now: float) -> None:
        """End the fits that nobody will go on with. `clients` are the clients that are connected.

        A question of a client may arrive after the client has left. And the process that submits a detached fit may be
        killed before it has the scheduler hold the driver: when the driver is lost, too, nothing starts it again.
        """
        for client in {record.client for record in self.records.values() if record.active}.difference(clients, [""]):
            self.client_left(client)
        unheld = [fit for fit, each in self.records.items() if each.active and not each.client and not each.task]
        self._unheld = {fit: self._unheld.get(fit, now) for fit in unheld}
        for fit, since in self._unheld.items():
            if now - since > _UNHELD_S:
                self.admission.release(fit)
                self.records[fit].end(LOST, "the process that submitted it was lost before the scheduler held the fit")

    def messages(self, places: Sequence[Place]) -> list[dict[str, Any]]:
        """Return the status of every fit, as plain values."""
        verdicts = {request.fit: self.admission.look(request, places) for request in self.admission.in_turn()}
        held, none = self.admission.held, Verdict()
        found = []
        for fit, record in self.records.items():
            verdict = verdicts.get(fit, none)
            waits = self._waits(record, verdict, n_workers=len(places))
            found.append(record.status(held.get(fit, ()), verdict.ahead, verdict.quota, waits).to_message())
        return found

    def _waits(self, record: FitRecord, verdict: Verdict, n_workers: int) -> str:
        """Return what a fit waits for, in a sentence; "" for nothing."""
        if record.state == SUBMITTED and record.metadata.detached and not n_workers:
            return "waiting for a worker to join the cluster"  # it cannot even request workers before
        fit, request = record.metadata.fit, self.admission.waiting.get(record.metadata.fit)
        if request is None:
            return ""
        answer = self._answer(request, verdict)
        obstacles = answer["obstacles"]
        return (
            waiting_in_words(verdict.quota, verdict.missing, verdict.ahead, answer["preempts"], obstacles, self._name)
            or f"waiting for the workers of fit {fit} to restart"
        )

    def _name(self, fit: str) -> str:
        """Return how people find a fit in a list: by its name and its identifier."""
        return f"{self.records[fit].metadata.name} ({fit})" if fit in self.records else fit

    def events(self, fit: str, since: int = 0) -> dict[str, Any]:
        """Return the events of `fit` from number `since` on, the number to request next, and its last batch."""
        record = self.records.get(fit)
        if record is None:
            return {"events": [], "next": since, "latest": {}, "active": False}
        return {
            "events": record.events[bisect_left(record.numbers, since) :],
            "next": record.n_events,
            "latest": record.latest,
            "active": record.active,
        }

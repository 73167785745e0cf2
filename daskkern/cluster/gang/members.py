"""Candidates for the ranks of one fit: the workers that are allowed, alive and responsive."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Worker

from daskkern.cluster.connect.leaving import LEAVING
from daskkern.cluster.gang.calls import call_workers
from daskkern.cluster.gang.growth import Prospects
from daskkern.cluster.gang.heartbeats import HeartbeatMonitor
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.hosts import grouped_by_host
from daskkern.cluster.scheduler.worker_list import WorkerList
from daskkern.errors import ClusterError

_ANSWER_S = 5.0


@dataclass(frozen=True)
class FitProgress:
    """The progress of a fit that its workers report: its latest generation, and that of the latest commit, or -1."""

    generation: int
    committed: int


@dataclass(frozen=True)
class RegainedWorkers:
    """What a suspended fit has: the addresses of the workers that were granted to it and live, the number that was
    granted, and the number that the cluster lacks."""

    addresses: tuple[str, ...]
    held: int
    missing: int


@dataclass
class Members:
    """The workers of a cluster that may be ranks of one fit.

    Parameters
    ----------
    worker : Worker
        The worker that this runs on.
    client : Client
    fit : str
    allowed : tuple of str or None
        Names of the workers that may be used, or None for all; a restarted worker keeps its name and changes its
        address.
    most : int or None
        Largest number of ranks.
    heartbeats : HeartbeatMonitor
    """

    worker: Worker
    client: Client
    fit: str
    allowed: tuple[str, ...] | None
    most: int | None
    heartbeats: HeartbeatMonitor
    rejected: set[str] = field(default_factory=set)
    """Workers that cannot be used, or did not start their ranks."""

    leaving: frozenset[str] = frozenset()
    """Workers that are about to leave the cluster, as of the last look."""

    def __post_init__(self) -> None:
        self._list = WorkerList(self.client)

    def look(self) -> tuple[Mapping[str, Mapping[str, Any]], set[str]]:
        """Return the workers that the scheduler counts as alive, by address, and those of them that are silent."""
        alive = self._list.alive()
        self.leaving = frozenset(address for address, worker in alive.items() if worker["status"] == LEAVING)
        return alive, self.heartbeats.silent(alive, self._list.interval_s)

    def usable(self) -> tuple[str, ...]:
        """Return the addresses that could start ranks now, in the order in which they joined the cluster.

        A worker that is paused for memory starts no task.
        """
        running = [address for address, worker in self._heard().items() if worker["status"] == "running"]
        barred = set(ask_fits(self.client, "barred", fit=self.fit))
        return tuple(address for address in running if address not in barred | self.rejected)

    def paused(self, addresses: Collection[str]) -> tuple[str, ...]:
        """Return those of `addresses` that are paused for memory: they start no task until they have freed some."""
        return tuple(a for a, worker in self._heard().items() if a in addresses and worker["status"] == "paused")

    def heard(self) -> tuple[str, ...]:
        """Return the responsive addresses that may be ranks of this fit, whichever fit uses them now."""
        return tuple(self._heard())

    def _heard(self) -> dict[str, Mapping[str, Any]]:
        alive, silent = self.look()
        return {
            address: worker
            for address, worker in alive.items()
            if address not in silent and (self.allowed is None or str(worker["name"]) in self.allowed)
        }

    def exclude(self, addresses: Collection[str], for_now: Collection[str]) -> None:
        """Do not use these workers for the fit: they have too little memory for a part of it. Those `for_now` may be
        used again later."""
        self.rejected |= set(addresses) - set(for_now)
        ask_fits(self.client, "exclude", fit=self.fit, addresses=list(addresses), for_now=list(for_now))

    def take(self, addresses: Sequence[str]) -> bool:
        """Assign these workers to the fit; return False if another fit was faster."""
        return bool(ask_fits(self.client, "take", fit=self.fit, addresses=list(addresses)))

    def lost(self, addresses: Iterable[str]) -> dict[int, str]:
        """Return, by rank, those of `addresses` that have left or gone silent."""
        alive, gone = self.look()
        return {rank: a for rank, a in enumerate(addresses) if a not in alive or a in gone}

    def drop(self, addresses: Iterable[str]) -> None:
        """Have the scheduler remove those of `addresses` that hang: results that only they hold are recomputed."""
        alive, _ = self.look()
        for address in addresses:
            if address in alive:
                ask_fits(self.client, "drop", address=address, silence_s=self.heartbeats.patience_s)

    def pick(self, before: Collection[str]) -> tuple[str, ...]:
        """Return the addresses for a new gang: those of the previous one first, at most `most`; then by host."""
        usable = self.usable()
        kept = [address for address in before if address in usable]
        picked = [*kept, *(address for address in usable if address not in before)][: self.most]
        return tuple(picked) if self.allowed is not None else grouped_by_host(picked)

    def joinable(self, members: Collection[str]) -> tuple[str, ...]:
        """Return the addresses that could join a gang of these members, which may be paused meanwhile."""
        room = None if self.most is None else max(0, self.most - len(members))
        return tuple([address for address in self.usable() if address not in members][:room])

    def prospects(self) -> Prospects:
        """Return the prospects of the fit, by the events that the scheduler has received."""
        left_s, cost_s = ask_fits(self.client, "prospects", fit=self.fit)
        return Prospects(float(left_s), float(cost_s))

    def hand_over(self, generation: int, addresses: Sequence[str]) -> None:
        """Hand these workers to the next supervisor after `generation`, which has committed."""
        ask_fits(self.client, "hand_over", fit=self.fit, generation=generation, addresses=list(addresses))

    def handed_over(self, generation: int) -> tuple[str, ...] | None:
        """Return the workers of the supervisor before, if it handed over after `generation`; else None."""
        number, addresses = ask_fits(self.client, "handed_over", fit=self.fit)
        return tuple(str(address) for address in addresses) if int(number) == generation else None

    def preempted_for(self) -> str:
        """Return the fit that this one is to hand workers over to after a commit, "" for none."""
        return str(ask_fits(self.client, "preempted_for", fit=self.fit))

    def hand_workers_over(self, *, whole: bool) -> tuple[str, ...] | None:
        """Hand workers over after a commit, with `whole` all; return the rest, () if the fit waits from now on.

        None if another supervisor has taken over.
        """
        task = str(self.worker.get_current_task())
        answer = ask_fits(self.client, "hand_workers_over", fit=self.fit, task=task, whole=whole)
        return tuple(map(str, answer["members"])) if answer["current"] else None

    def suspended(self) -> bool:
        """Return whether the fit was preempted and has no workers yet."""
        return bool(ask_fits(self.client, "suspended", fit=self.fit))

    def workers_again(self, *, settle: bool) -> "RegainedWorkers | None":
        """Ask for the workers of a suspended fit; None if another supervisor has taken over.

        With `settle` the fit no longer waits for more workers than there are.
        """
        task = str(self.worker.get_current_task())
        answer = ask_fits(self.client, "workers_again", fit=self.fit, task=task, settle=settle)
        if not answer["current"]:
            return None
        return RegainedWorkers(tuple(map(str, answer["members"])), int(answer["held"]), int(answer["missing"]))

    def progress(self) -> FitProgress:
        """Query the workers for the state of the fit. One that does not answer counts as silent from now on."""
        messages = {address: {"fit": self.fit} for address in self.heard()}
        answers = call_workers(self.worker, self.client, "progress", messages, _ANSWER_S)
        self.heartbeats.mark_silent(answers.errors)
        known = [answer for answer in answers.values.values() if isinstance(answer, list | tuple) and len(answer) == 2]
        return FitProgress(max((a[0] for a in known), default=-1), max((a[1] for a in known), default=-1))

    def forget(self, generation: int) -> None:
        """Let all workers forget the fit, which ended after `generation`."""
        messages = {address: {"fit": self.fit, "generation": generation} for address in self.heard()}
        call_workers(self.worker, self.client, "forget", messages, _ANSWER_S)

    def gather(self, before: Collection[str], wanted: int, rejoin_s: float, idle_s: float) -> tuple[str, ...]:
        """Wait for workers, and return the addresses of a new gang.

        Returns at once when `wanted` are present, or after `rejoin_s` with those that are; raises ClusterError after
        `idle_s` without any.
        """
        begun = time.monotonic()
        while True:
            picked = self.pick(before)
            waited = time.monotonic() - begun
            enough = picked and (len(picked) >= wanted or waited >= rejoin_s)
            if enough and self.take(picked):
                return picked
            if not picked and waited >= idle_s:
                raise ClusterError(
                    f"no worker was left to go on with the fit, and none came in {idle_s:g} s; start workers and fit "
                    "again with resume"
                )
            time.sleep(0.1)

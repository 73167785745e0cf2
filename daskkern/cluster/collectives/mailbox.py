"""Mailboxes for the messages of a fit on a worker: filled by the event loop, emptied by the rank's thread.

Every message carries a fencing token, (fit, generation, channel, sequence, operation). Channel 0 is that of the
collectives of all ranks, and those below 0 of the collectives of some of them. The supervisor opens a generation on
every member before any rank starts, so a message for a fit or a generation that is not open here is stale and is
dropped.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.wire import unpack
from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.cluster.gang.rank_slots import RankSlots
from daskkern.errors import CommunicatorClosedError

OPENED, WAITING, RUNNING = "opened", "waiting", "running"
"""States of a rank: its task has not begun; it waits for an earlier rank of the fit on this worker; it runs."""


@dataclass(frozen=True)
class Membership:
    """One rank's view of one generation of one fit: its rank, and the addresses of its peers.

    `task` is the key of the Dask task that runs the rank: the rank ends with its task.
    """

    fit: str
    generation: int
    rank: int
    addresses: tuple[str, ...]
    task: str

    @property
    def size(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True)
class Parcel:
    """A received array, and the collective that its sender is in."""

    operation: str
    array: HostArray


class Mailbox:
    """The parcels of one rank in one generation. Thread-safe; every wait has a deadline and is woken by `abort`."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.stop_requested = False
        self.regroup_requested = False
        self.state = OPENED
        self.starving: int | None = None
        """The channel whose next message the rank itself waits for, and computes nothing."""
        self.n_taken = 0
        """Rounds of collectives that the rank has ended."""
        self._waits: dict[int, tuple[int, ...]] = {}  # by channel
        self._closed: set[int] = set()
        self._reason: str | None = None
        self._parcels: dict[tuple[int, int, int], Parcel] = {}  # (channel, sequence, source)
        self._changed = threading.Condition()

    @property
    def reason(self) -> str | None:
        """Why the generation was aborted, or None if it was not."""
        return self._reason

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The ranks that this one waits for, when it began to wait; empty while it computes."""
        own = next((ranks for channel, ranks in list(self._waits.items()) if channel <= 0 and ranks), ())
        return own or (() if self.starving is None else self._waits.get(self.starving, ()))

    def put(self, sequence: int, source: int, parcel: Parcel, channel: int = 0) -> None:
        with self._changed:
            if channel not in self._closed:
                self._parcels[channel, sequence, source] = parcel
                self._changed.notify_all()

    def take(
        self,
        sequence: int,
        operation: str,
        sources: Sequence[int],
        timeout_s: float,
        setting: str = "collective_timeout_s",
        still_at_work: Callable[[Sequence[int]], bool] | None = None,
        channel: int = 0,
    ) -> list[HostArray]:
        """Return what `sources` sent in step `sequence` of a channel, in their order.

        Parameters
        ----------
        timeout_s
            How long to wait until `still_at_work` is asked.
        setting
            Names the timeout to raise.
        still_at_work
            Returns whether the given ranks, from which nothing has come, are alive; they are then waited for again.
            None gives up instead.

        Raises
        ------
        CommunicatorClosedError
            When the generation is aborted, the channel closed, the deadline passes, or a peer is in another operation.
        """
        wanted = [(channel, sequence, source) for source in sources]
        missing = self._wait_for(wanted, timeout_s)
        while missing and still_at_work is not None and still_at_work(missing):
            missing = self._wait_for(wanted, timeout_s)
        missing = missing and self._wait_for(wanted, 0.0)  # it may have come during the last question
        if missing:
            raise CommunicatorClosedError(self._late(operation, missing, timeout_s, setting))
        with self._changed:
            self.check(channel)
            parcels, self._waits[channel] = [self._parcels.pop(key) for key in wanted], ()
            self.n_taken += channel <= 0
        for source, parcel in zip(sources, parcels, strict=True):
            if parcel.operation != operation:
                raise CommunicatorClosedError(
                    f"rank {self.membership.rank} called {operation} where rank {source} called "
                    f"{parcel.operation}; every rank must call the same collectives in the same order"
                )
        return [parcel.array for parcel in parcels]

    def _wait_for(self, wanted: Sequence[tuple[int, int, int]], timeout_s: float) -> tuple[int, ...]:
        """Wait, and return the sources from which nothing has come in time. Raises when it is aborted."""
        channel = wanted[0][0] if wanted else 0

        def missing() -> tuple[int, ...]:
            return tuple(key[2] for key in wanted if key not in self._parcels)

        def ended() -> bool:
            return self._reason is not None or channel in self._closed or not missing()

        with self._changed:
            self._waits[channel] = missing()
            self._changed.wait_for(ended, timeout_s)
            self.check(channel)
            return missing()

    def check(self, channel: int = 0) -> None:
        """Raise CommunicatorClosedError when the generation was aborted, or the channel closed."""
        if self._reason is not None:
            raise CommunicatorClosedError(f"the collective was given up: {self._reason}")
        if channel in self._closed:
            raise CommunicatorClosedError(f"channel {channel} is closed on rank {self.membership.rank}")

    def close_channel(self, channel: int) -> None:
        """Drop the messages of a channel, now and later, and make a `take` from it raise."""
        with self._changed:
            self._closed.add(channel)
            self._waits.pop(channel, None)
            self._parcels = {key: parcel for key, parcel in self._parcels.items() if key[0] != channel}
            self._changed.notify_all()

    def abort(self, reason: str) -> None:
        """Make every pending and later `take` raise with `reason`. The first reason stays."""
        with self._changed:
            self._reason = self._reason or reason
            self._parcels.clear()
            self._changed.notify_all()

    def _late(self, operation: str, missing: Sequence[int], timeout_s: float, setting: str) -> str:
        names = ", ".join(f"rank {rank} at {self.membership.addresses[rank]}" for rank in missing)
        return (
            f"{operation} was given up by rank {self.membership.rank}: in {timeout_s:g} s nothing came from {names}; "
            f"see whether that worker is alive or busy with other tasks, or raise {setting}"
        )


@dataclass
class MailboxRegistry:
    """The mailboxes of one worker, one for each fit that has a rank here. Changed by the event loop only,
    except that a rank's thread looks up its own."""

    mailboxes: dict[str, Mailbox] = field(default_factory=dict)
    commit_caches: dict[str, CommitCache] = field(default_factory=dict)
    slots: RankSlots = field(default_factory=RankSlots)
    generations: dict[str, int] = field(default_factory=dict)
    """The latest generation of each fit that is not over, also where no rank runs at the moment."""
    clock: Callable[[], float] = time.monotonic
    _touched: dict[str, float] = field(default_factory=dict)

    def open(self, membership: Membership) -> bool:
        """Begin a generation of a fit and abort an older one. Return False if this one is not newer."""
        if self.generations.get(membership.fit, -1) >= membership.generation:
            return False
        self.generations[membership.fit] = membership.generation
        self._touched[membership.fit] = self.clock()
        self.commit_caches.setdefault(membership.fit, CommitCache()).begin(membership.generation)
        previous = self.mailboxes.get(membership.fit)
        mailbox = Mailbox(membership)
        if previous is not None:
            previous.abort(f"generation {membership.generation} of fit {membership.fit} has begun")
            mailbox.stop_requested = previous.stop_requested
        self.mailboxes[membership.fit] = mailbox
        return True

    def find(self, fit: str, generation: int) -> Mailbox | None:
        """Return the mailbox of exactly this generation, or None."""
        mailbox = self.mailboxes.get(fit)
        return mailbox if mailbox is not None and mailbox.membership.generation == generation else None

    def deliver(
        self,
        fit: str,
        generation: int,
        sequence: int,
        operation: str,
        source: int,
        array: Mapping[str, Any],
        channel: int = 0,
    ) -> None:
        """Put an array into the mailbox that it is addressed to; drop it if there is none."""
        mailbox = self.find(fit, generation)
        if mailbox is None:
            return
        try:
            parcel = Parcel(operation, unpack(**array))
        except (TypeError, ValueError) as error:
            mailbox.abort(f"rank {source} sent what cannot be read: {error}")
        else:
            mailbox.put(sequence, source, parcel, channel)

    def state(self, fit: str, generation: int) -> str:
        """Return the state of the rank of this generation, "" where it has ended."""
        mailbox = self.find(fit, generation)
        return "" if mailbox is None else mailbox.state

    def waits_for(self, fit: str, generation: int) -> list[int] | None:
        """Return the ranks that the rank of this generation waits for, [] while it computes; None if it has ended."""
        mailbox = self.find(fit, generation)
        return None if mailbox is None or mailbox.reason is not None else list(mailbox.waits_for)

    def stop(self, fit: str) -> None:
        """Ask the rank of `fit` to end after its current step."""
        mailbox = self.mailboxes.get(fit)
        if mailbox is not None:
            mailbox.stop_requested = True

    def regroup(self, fit: str, generation: int) -> None:
        """Ask the rank of `fit` to commit and return, so that a gang of other ranks can continue."""
        mailbox = self.find(fit, generation)
        if mailbox is not None:
            mailbox.regroup_requested = True

    def progress(self, fit: str) -> tuple[int, int]:
        """Return the latest generation of `fit` known here, and that of the last commit made here; -1 for none."""
        if fit in self.generations:
            self._touched[fit] = self.clock()
        cache = self.commit_caches.get(fit)
        return self.generations.get(fit, -1), -1 if cache is None else cache.committed

    def forget(self, fit: str, generation: int) -> None:
        """Remove all state of `fit`, which ended after `generation`. Nothing happens if a later one has begun."""
        if self.generations.get(fit, -1) > generation:
            return
        self.close(fit)
        self.commit_caches.pop(fit, None)
        self.generations.pop(fit, None)
        self._touched.pop(fit, None)

    def unattended(self, quiet_s: float) -> list[str]:
        """Return the fits that have no running rank here, and of which no supervisor has asked for `quiet_s`."""
        now = self.clock()
        self._touched |= {fit: now for fit in self._touched if self.slots.taken(fit)}
        return [fit for fit, touched in self._touched.items() if now - touched >= quiet_s]

    def abort(self, fit: str, generation: int | None, reason: str) -> None:
        """Abort `generation` of `fit`; None aborts whichever generation is open."""
        mailbox = self.mailboxes.get(fit)
        if mailbox is not None and generation in (None, mailbox.membership.generation):
            mailbox.abort(reason)

    def close(self, fit: str, generation: int | None = None) -> None:
        """Abort and forget `generation` of `fit`; None takes whichever generation is open."""
        mailbox = self.mailboxes.get(fit)
        if mailbox is not None and generation in (None, mailbox.membership.generation):
            mailbox.abort("the fit has ended")
            del self.mailboxes[fit]

    def abort_where(self, condition: Callable[[Membership], bool], reason: str) -> None:
        """Abort the generations whose membership meets `condition`."""
        for mailbox in list(self.mailboxes.values()):
            if condition(mailbox.membership):
                mailbox.abort(reason)

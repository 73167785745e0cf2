"""The mailboxes of a worker, one for each fit that has a rank there."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from daskkern.cluster.collectives.mailbox import Mailbox, Membership, Parcel
from daskkern.cluster.collectives.wire import unpack
from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.cluster.gang.rank_slots import RankSlots


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

    def abandoned(self, quiet_s: float) -> list[str]:
        """Return the fits that have no running rank here, and that no supervisor has polled for `quiet_s`."""
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

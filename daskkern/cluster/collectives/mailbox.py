"""The mailbox for the messages of a rank: filled by the event loop, emptied by the rank's thread.

Every message carries a fencing token, (fit, generation, channel, sequence, operation). Channel 0 is that of the
collectives of all ranks, and those below 0 of the collectives of some of them. The supervisor opens a generation on
every member before any rank starts, so a message for a fit or a generation that is not open here is stale and is
dropped.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daskkern.arrays import HostArray
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
        is_progressing: Callable[[Sequence[int]], bool] | None = None,
        channel: int = 0,
    ) -> list[HostArray]:
        """Return what `sources` sent in step `sequence` of a channel, in their order.

        Parameters
        ----------
        timeout_s
            How long to wait until `is_progressing` is asked.
        setting
            Names the timeout to raise.
        is_progressing
            Returns whether the given ranks, from which nothing has come, are alive; they are then waited for again.
            None gives up instead.

        Raises
        ------
        CommunicatorClosedError
            When the generation is aborted, the channel closed, the deadline passes, or a peer is in another operation.
        """
        wanted = [(channel, sequence, source) for source in sources]

        def wait(seconds: float) -> tuple[int, ...]:
            return self._wait_for(wanted, seconds)

        self.await_ranks(wait, operation, timeout_s, setting, is_progressing, channel)
        with self._changed:
            self.check(channel)
            parcels = [self._parcels.pop(key) for key in wanted]
        for source, parcel in zip(sources, parcels, strict=True):
            self._agree(operation, source, parcel)
        return [parcel.array for parcel in parcels]

    def await_ranks(
        self,
        wait: Callable[[float], tuple[int, ...]],
        operation: str,
        timeout_s: float,
        setting: str = "collective_timeout_s",
        is_progressing: Callable[[Sequence[int]], bool] | None = None,
        channel: int = 0,
    ) -> None:
        """Return once `wait`, which waits for as many seconds as it is given, returns no rank that is missing.

        The rest is as in :meth:`take`.
        """
        missing = wait(timeout_s)
        while missing and is_progressing is not None and is_progressing(missing):
            missing = wait(timeout_s)
        missing = missing and wait(0.0)  # it may have come during the last question
        if missing:
            raise CommunicatorClosedError(self._late(operation, missing, timeout_s, setting))
        with self._changed:
            self._waits[channel] = ()
            self.n_taken += channel <= 0

    def look_for(self, sequence: int, operation: str, missing: tuple[int, ...], channel: int = 0) -> None:
        """Note for which ranks the thread of a channel waits that looks for what is not sent to it.

        Raises
        ------
        CommunicatorClosedError
            As :meth:`take`: also when one of them has sent something in this step.
        """
        self._waits[channel] = missing
        self.check(channel)
        for source in missing:
            parcel = self._parcels.get((channel, sequence, source))
            if parcel is not None:
                self._agree(operation, source, parcel)

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
            raise CommunicatorClosedError(f"the collective was aborted: {self._reason}")
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

    def _agree(self, operation: str, source: int, parcel: Parcel) -> None:
        if parcel.operation != operation:
            raise CommunicatorClosedError(
                f"rank {self.membership.rank} called {operation} where rank {source} called "
                f"{parcel.operation}; every rank must call the same collectives in the same order"
            )

    def _late(self, operation: str, missing: Sequence[int], timeout_s: float, setting: str) -> str:
        names = ", ".join(f"rank {rank} at {self.membership.addresses[rank]}" for rank in missing)
        return (
            f"{operation} was given up by rank {self.membership.rank}: in {timeout_s:g} s nothing came from {names}; "
            f"see whether that worker is alive or busy with other tasks, or raise {setting}"
        )

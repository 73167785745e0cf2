"""Point-to-point transport of arrays between the ranks of a gang, over Dask's own comms."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from distributed import Worker

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.mailbox import Mailbox
from daskkern.cluster.collectives.wire import BYTES, DTYPES, pack
from daskkern.cluster.connect.protocol import handler
from daskkern.errors import CommunicatorClosedError

_COLLECTIVE = "collective_timeout_s"
_ANSWER_S = 10.0
"""How long a worker may take to say what its rank does. Its event loop answers also while the rank computes."""


class PeerTransport:
    """One rank's outgoing messages and its mailbox, called from the rank's own thread.

    A message is pushed into the peer's mailbox and is not answered, and no handler anywhere waits for a peer. Every
    message carries fit, generation, channel, the number of the collective and its name; every wait has a deadline.

    Parameters
    ----------
    worker
        The Dask worker of this process, on which the plugin is installed.
    mailbox
        The rank's mailbox, opened by the supervisor.
    timeout_s
        How long a collective waits for its peers before it asks their workers whether they are still at work. A peer
        in a long step is waited for; one that is silent, has ended, or waits in a circle is given up.
    channel
        0 for the collectives of all ranks, below 0 for those of some ranks. Others carry bytes, and each has a thread
        of its own on every rank.
    ranks
        The ranks of the gang that take part, which are numbered from 0 here; () for all of them.
    """

    def __init__(
        self, worker: Worker, mailbox: Mailbox, timeout_s: float, channel: int = 0, ranks: Sequence[int] = ()
    ) -> None:
        self._ranks = tuple(ranks) or tuple(range(mailbox.membership.size))
        self.rank = self._ranks.index(mailbox.membership.rank)
        self.size = len(self._ranks)
        self.peers = [rank for rank in range(self.size) if rank != self.rank]
        self.timeout_s = timeout_s
        self.bytes_sent = self.messages_sent = 0
        self.mailbox = mailbox
        self.channel = channel
        self._worker = worker
        self._sequence = 0
        self._dtypes = BYTES if channel > 0 else DTYPES
        self._n_taken = -1  # at the last question

    def of_channel(self, channel: int) -> "PeerTransport":
        """Return the transport of another channel of this rank."""
        return PeerTransport(self._worker, self.mailbox, self.timeout_s, channel)

    def of_ranks(self, channel: int, ranks: Sequence[int]) -> "PeerTransport":
        """Return the transport of the collectives of some ranks, this one among them; `channel` is below 0."""
        return PeerTransport(self._worker, self.mailbox, self.timeout_s, channel, ranks)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the workers of all ranks that take part."""
        return [self.mailbox.membership.addresses[rank] for rank in self._ranks]

    @property
    def round(self) -> int:
        """The number of the round that was begun last."""
        return self._sequence

    def begin(self) -> None:
        """Begin the next round: messages pushed and taken from now on belong to the same collective on all ranks."""
        self._sequence += 1

    def push(self, destinations: Sequence[int], operation: str, host: HostArray) -> None:
        """Send a copy of `host` to the mailboxes of `destinations`. Does not wait for the network."""
        member = self.mailbox.membership
        message = {
            "op": handler("put"),
            "reply": False,
            "fit": member.fit,
            "generation": member.generation,
            "channel": self.channel,
            "sequence": self._sequence,
            "operation": operation,
            "source": self.mailbox.membership.rank,
            "array": pack(host, self._dtypes),
        }
        self.bytes_sent += host.nbytes * len(destinations)
        self.messages_sent += len(destinations)
        self._worker.loop.add_callback(_begin, self._deliver, [self._ranks[rank] for rank in destinations], message)

    def take(
        self,
        sources: Sequence[int],
        operation: str,
        patience: float = 0.0,
        timeout_s: float | None = None,
        setting: str = _COLLECTIVE,
    ) -> list[HostArray]:
        """Return what `sources` push in this round, in their order. They may be views of receive buffers.

        Parameters
        ----------
        patience
            From 0 to 1: a rank that waits for another waiting rank waits a little longer, up to a second, so that the
            rank that knows which peer is missing reports it first.
        timeout_s
            Replaces the default timeout.
        setting
            Name of the timeout that the user can raise.
        """
        wait = self.timeout_s if timeout_s is None else timeout_s
        wait += patience * min(1.0, wait / 2)
        patient = self.is_progressing if setting == _COLLECTIVE else None  # the supervisor watches the start
        senders = [self._ranks[rank] for rank in sources]
        return self.mailbox.take(self._sequence, operation, senders, wait, setting, patient, self.channel)

    def await_others(self, late: Callable[[], Iterable[int]], pause: Callable[[float], None], operation: str) -> None:
        """Wait until `late()` returns no rank, in a round whose arrays are not sent; the rest is as in :meth:`take`.

        Between two looks `pause` is called with the seconds so far.
        """

        def wait(seconds: float) -> tuple[int, ...]:
            begun = time.monotonic()
            while missing := tuple(self._ranks[int(rank)] for rank in late()):
                self.mailbox.look_for(self._sequence, operation, missing, self.channel)
                waited = time.monotonic() - begun
                if waited >= seconds:
                    return missing
                pause(waited)
            return ()

        self.mailbox.await_ranks(wait, operation, self.timeout_s, _COLLECTIVE, self.is_progressing, self.channel)

    def exchange(self, operation: str, host: HostArray) -> list[HostArray]:
        """Push `host` to every peer and return the arrays of all ranks, in rank order, in a round of its own."""
        self.begin()
        self.push(self.peers, operation, host)
        parts = self.take(self.peers, operation)
        parts.insert(self.rank, host)
        return parts

    def same(self, source: int, theirs: HostArray, mine: HostArray, operation: str) -> None:
        """Raise CommunicatorClosedError unless both arrays have the same shape and dtype."""
        if theirs.dtype != mine.dtype or theirs.shape != mine.shape:
            self.refuse(operation, source, theirs, mine)

    def refuse(self, operation: str, source: int, theirs: HostArray, mine: HostArray) -> None:
        """Raise CommunicatorClosedError for arrays of different shape or dtype."""
        raise CommunicatorClosedError(
            f"{operation} was called with {mine.dtype} {mine.shape} by rank {self._ranks[self.rank]} and with "
            f"{theirs.dtype} {theirs.shape} by rank {self._ranks[source]}; every rank must pass the same shape and "
            "dtype"
        )

    def abort(self, reason: str) -> None:
        """Abort here and on all peers."""
        self.mailbox.abort(reason)
        self._worker.loop.add_callback(_begin, self._send_abort, reason)

    def is_progressing(self, missing: Sequence[int]) -> bool:
        """Return whether the ranks `missing` are alive, and one of them computes, or a rank that they wait for.

        Or, for a channel, whether the rank has ended a collective since the last question: in each of them, ranks wait
        for each other for a moment, which looks like a circle.
        """
        before, self._n_taken = self._n_taken, self.mailbox.n_taken
        going_on = self.channel > 0 and before != self._n_taken
        loop: Any = self._worker.loop
        question = asyncio.run_coroutine_threadsafe(self._somebody_computes(missing), loop.asyncio_loop)
        try:
            return question.result(_ANSWER_S * (self.mailbox.membership.size + 1)) or going_on
        except TimeoutError:
            question.cancel()
            return False

    async def _somebody_computes(self, missing: Sequence[int]) -> bool:
        # A thread that waits in the channel of the collectives is the rank's own: others do not say what it does.
        queried, asking = set() if self.channel > 0 else {self.mailbox.membership.rank}, set(missing)
        while asking:
            answers = await asyncio.gather(*(self._waits_for(rank) for rank in sorted(asking)))
            if any(answer is None for answer in answers):
                return False
            if any(not answer for answer in answers):
                return True
            queried |= asking
            asking = {rank for answer in answers for rank in answer or ()} - queried
        return False

    async def _waits_for(self, rank: int) -> list[int] | None:
        """Return the ranks that `rank` waits for, [] if it computes; None if it has ended, or its worker is silent."""
        member = self.mailbox.membership
        if rank == member.rank:
            return list(self.mailbox.waits_for)
        call = getattr(self._worker.rpc(member.addresses[rank]), handler("waits_for"))
        try:
            answer = await asyncio.wait_for(call(fit=member.fit, generation=member.generation), _ANSWER_S)
        except Exception:  # whatever the transport raises, the peer cannot be reached
            return None
        return None if answer is None else [int(other) for other in answer]

    async def _deliver(self, destinations: Sequence[int], message: dict[str, Any]) -> None:
        """Queue `message` for each destination. Writes do not wait for the network, so one after the other is fine."""
        for rank in destinations:
            address = self.mailbox.membership.addresses[rank]
            try:
                await self._write(address, message)
            except Exception as error:  # whatever the transport raises, the peer cannot be reached
                self.mailbox.abort(f"rank {rank} at {address} cannot be reached: {error}")
                return

    async def _send_abort(self, reason: str) -> None:
        member = self.mailbox.membership
        fence = {"fit": member.fit, "generation": member.generation}
        message = {"op": handler("abort"), "reply": False, **fence, "reason": reason}
        writes = (self._write(address, message) for rank, address in enumerate(member.addresses) if rank != member.rank)
        await asyncio.gather(*writes, return_exceptions=True)  # a dead peer needs no message

    async def _write(self, address: str, message: dict[str, Any]) -> None:
        comm = await self._worker.rpc.connect(address)
        try:
            await comm.write(message)
        finally:
            self._worker.rpc.reuse(address, comm)


_SENDING: set[asyncio.Future[None]] = set()
"""Messages in transit: an event loop keeps only weak references to its tasks."""


def _begin(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    task = asyncio.ensure_future(work(*arguments))
    _SENDING.add(task)
    task.add_done_callback(_SENDING.discard)

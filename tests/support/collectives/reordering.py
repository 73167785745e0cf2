"""Ranks in threads of this process whose messages arrive in any order."""

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.mailbox import Mailbox, Membership, Parcel
from daskkern.cluster.collectives.transport import PeerTransport


class ReorderingTransport(PeerTransport):
    """A peer transport between threads of this process, which delivers in an order of its own."""

    def __init__(
        self,
        mailboxes: Sequence[Mailbox],
        rank: int,
        timeout_s: float = 60.0,
        seed: int = 0,
        channel: int = 0,
        ranks: Sequence[int] = (),
    ) -> None:
        super().__init__(None, mailboxes[rank], timeout_s, channel, ranks)  # type: ignore[arg-type]
        self._mailboxes, self._rng, self._seed = mailboxes, np.random.default_rng([seed, rank]), seed
        self._members = tuple(ranks) or tuple(range(len(mailboxes)))
        self.messages = 0
        self.copies: Counter[int] = Counter()
        """Messages to each other rank."""

    def of_ranks(self, channel: int, ranks: Sequence[int]) -> "ReorderingTransport":
        own = self._members[self.rank]
        return ReorderingTransport(self._mailboxes, own, self.timeout_s, self._seed, channel, ranks)

    def push(self, destinations: Sequence[int], operation: str, host: HostArray) -> None:
        self.bytes_sent += host.nbytes * len(destinations)
        self.messages += len(destinations)
        self.copies.update(destinations)
        copy = host.copy()
        copy.flags.writeable = False  # as a receive buffer is
        for rank in self._rng.permutation(np.asarray(destinations, int)):
            if self._rng.random() < 0.3:
                time.sleep(0.001)
            source = self._members[self.rank]
            self._mailboxes[self._members[rank]].put(self._sequence, source, Parcel(operation, copy), self.channel)

    def is_progressing(self, missing: Sequence[int]) -> bool:
        return False

    def abort(self, reason: str) -> None:
        for mailbox in self._mailboxes:
            mailbox.abort(reason)


def reordering_transports(
    size: int, timeout_s: float = 60.0, seed: int = 0, ranks_per_host: int = 1
) -> list[ReorderingTransport]:
    addresses = tuple(f"tcp://host{rank // ranks_per_host}:{rank % ranks_per_host + 1}" for rank in range(size))
    mailboxes = [Mailbox(Membership("fit", 0, rank, addresses, "task")) for rank in range(size)]
    return [ReorderingTransport(mailboxes, rank, timeout_s, seed) for rank in range(size)]

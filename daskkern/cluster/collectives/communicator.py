"""Collectives between the ranks of a gang, over Dask's own comms (TLS, IPv6, UCXX and interfaces included)."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from distributed.comm.addressing import get_address_host

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Channel, Communicator, SerialCommunicator
from daskkern.backend.concurrency import cpu_count
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import slices
from daskkern.cluster.collectives.allgather import gather_at, gather_parts
from daskkern.cluster.collectives.allreduce import WAYS, Way
from daskkern.cluster.collectives.channel import PeerChannel
from daskkern.cluster.collectives.host_tree import children, parent
from daskkern.cluster.collectives.shared_memory import HostMemory, no_token
from daskkern.cluster.collectives.shared_sums import SharedSums
from daskkern.cluster.collectives.sum_costs import way_of_sum
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import owned

_LOG = logging.getLogger("daskkern.collectives")
_PIECE = 1 << 20
"""Bytes of a broadcast that travel together: arrays of this size reuse memory that a rank has used before."""


class DaskCommunicator(Communicator):
    """The communicator of one rank of a gang, called from the rank's own thread.

    A message is pushed into the peer's mailbox and is not answered: an allreduce then costs one or two
    crossings of an event loop, and no handler anywhere waits for a peer.

    A sum uses one of the algorithms of :mod:`daskkern.cluster.collectives.allreduce`, chosen by the numbers of ranks
    and hosts and the size of the array; all give the same bits. Ranks of one host take their part of the sums of small
    arrays in memory that they share: :mod:`daskkern.cluster.collectives.shared_sums`. The choice is logged to
    ``daskkern.collectives`` (debug) when it is first made, and reported in the timing breakdown of a fit.
    ``benchmarks/collectives.py`` measures them.

    Parameters
    ----------
    transport : PeerTransport
        That of the rank, used by nobody else.
    way
        The algorithm for all sums, by messages, the same on all ranks; None chooses one for each sum.
    """

    sends_ahead = True

    def __init__(self, transport: PeerTransport, way: Way | None = None) -> None:
        self.rank, self.size, self.timeout_s = transport.rank, transport.size, transport.timeout_s
        self.way = way
        self._transport = transport
        self._mailbox = transport.mailbox
        self._hosts = [get_address_host(address) for address in transport.addresses]
        self._n_hosts = len(set(self._hosts))
        self._cores = self.size
        self._ways: Counter[str] = Counter()
        self._channels: list[PeerTransport] = []
        self._n_parts = 0
        self._memory: HostMemory | None = None
        self._shared: SharedSums | None = None

    @property
    def bytes_sent(self) -> int:
        return self._transport.bytes_sent + sum(channel.bytes_sent for channel in self._channels)

    def channel(self) -> Channel | None:
        if self.size == 1:
            return None
        self._channels.append(self._transport.of_channel(len(self._channels) + 1))
        return PeerChannel(self._channels[-1])

    def of_ranks(self, ranks: Sequence[int]) -> Communicator:
        self._n_parts += 1
        if list(ranks) == [self.rank]:
            return SerialCommunicator()
        part = DaskCommunicator(self._transport.of_ranks(-self._n_parts, ranks), self.way)
        part._cores = max(1, self._cores * part.size // self.size)
        if self._memory is not None:
            places = _places_on_hosts(self._hosts)
            part._shared = SharedSums.of(
                self._memory, self._n_parts, part._transport, part._hosts, [places[rank] for rank in ranks]
            )
        return part

    @property
    def messages_sent(self) -> int:
        """Number of messages that this rank has sent so far."""
        return self._transport.messages_sent + sum(channel.messages_sent for channel in self._channels)

    @property
    def ways(self) -> Mapping[str, int]:
        return self._ways

    def check(self) -> None:
        self._mailbox.check()

    def allreduce(self, array: Array) -> Array:
        return self.begin_allreduce(array)()

    def begin_allreduce(self, array: Array) -> Callable[[], Array]:
        self._mailbox.check()
        host = to_host(array)
        if self.way is None and self._shared is not None and self._shared.suits(host):
            self._count(self._shared.name, host)
            finish = self._shared.begin(host)
        else:
            way = self._way_of(host)
            self._count(way, host)
            finish = WAYS[way](self._transport, host)
        return lambda: namespace_of(array).asarray(finish())

    def allgather(self, array: Array) -> Sequence[Array]:
        self._mailbox.check()
        parts = gather_parts(self._transport, to_host(array))
        return [namespace_of(array).asarray(owned(part)) for part in parts]

    def gather_to(self, array: Array, holders: Sequence[int]) -> Sequence[Array] | None:
        self._mailbox.check()
        parts = gather_at(self._transport, to_host(array), holders)
        return None if parts is None else [namespace_of(array).asarray(owned(part)) for part in parts]

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Return rank `root`'s array on every rank; on the root, without a copy.

        The array goes down a binomial tree in pieces of 1 MB, which are forwarded while others are in transit.
        """
        self._mailbox.check()
        if not 0 <= root < self.size:
            raise ValueError(
                f"got root={root} of a broadcast; expected 0 to {self.size - 1}, one of the {self.size} ranks"
            )
        place, host = (self.rank - root) % self.size, to_host(array)
        above = [(parent(place) + root) % self.size] if place else []
        below = [(child + root) % self.size for child in children(place, self.size)]
        operation = f"broadcast of {host.dtype} {host.shape}"
        whole = np.empty(host.shape, host.dtype) if place else np.ascontiguousarray(host)
        flat = whole.reshape(-1)
        for piece in slices(flat.size, _PIECE // flat.itemsize) or [slice(0, 0)]:
            self._transport.begin()
            for part in self._transport.take(above, operation, patience=place.bit_count() / 20):
                self._transport.same(above[0], part, flat[piece], operation)
                flat[piece] = part
            self._transport.push(below, operation, flat[piece])
        return namespace_of(array).asarray(whole) if place else array

    def barrier(self) -> None:
        """Wait until every rank has arrived, in log2 W steps: a rank sends to the one 2^k after it."""
        self._mailbox.check()
        transport, distance = self._transport, 1
        transport.begin()
        while distance < self.size:
            transport.push([(self.rank + distance) % self.size], "barrier", np.empty(0))
            transport.take([(self.rank - distance) % self.size], "barrier", patience=distance / self.size)
            distance *= 2

    def start(self, timeout_s: float) -> None:
        """Wait until every rank runs. This has its own deadline: a rank on a busy worker starts later than others.

        Ranks of one host share its cores, of which rank 0 tells the number: all choose by the same.
        """
        self._mailbox.check()
        transport = self._transport
        transport.begin()
        if self.rank == 0:
            transport.take(transport.peers, "start", 0.0, timeout_s, "start_timeout_s")
            started = np.array([cpu_count()], np.int64)
            transport.push(transport.peers, "start", started)
        else:
            transport.push([0], "start", np.empty(0))
            (started,) = transport.take([0], "start", 1.0, timeout_s, "start_timeout_s")
        self._cores = min(self.size, int(started[0])) if self._n_hosts == 1 else self.size
        if self.way is None and self._n_hosts < self.size:
            self._share_memory()

    def _share_memory(self) -> None:
        """Take sums of small arrays through memory from now on, if the ranks of every host have it. A collective."""
        transport, host = self._transport, self._hosts[self.rank]
        ranks, token = [rank for rank in range(self.size) if self._hosts[rank] == host], no_token()
        transport.begin()
        try:
            if self.rank == ranks[0]:
                token = HostMemory.create()
                transport.push(ranks[1:], "shared memory", token)
            else:
                (token,) = transport.take(ranks[:1], "shared memory")
            memory = HostMemory.open(token, max(Counter(self._hosts).values()))
            flag = np.array([memory is not None], np.int64)
            n_with_memory = int(WAYS[self._way_of(flag)](transport, flag)()[0])
        finally:
            HostMemory.unlink(token)
        if memory is not None and n_with_memory == self.size:
            self._memory = memory
            self._shared = SharedSums.of(memory, 0, transport, self._hosts, _places_on_hosts(self._hosts))

    def _way_of(self, host: HostArray) -> Way:
        return self.way or way_of_sum(self.size, host.nbytes, self._n_hosts, self._cores)

    def _count(self, way: str, host: HostArray) -> None:
        if way not in self._ways:
            _LOG.debug("rank %d of %d: sums of %d bytes go by %s", self.rank, self.size, host.nbytes, way)
        self._ways[way] += 1

    def abort(self, reason: str) -> None:
        self._transport.abort(reason)

    def close(self) -> None:
        self._mailbox.abort("this communicator is closed")


def _places_on_hosts(hosts: Sequence[str]) -> list[int]:
    """Return the number of each rank among those of its host."""
    numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
    return [next(numbers[host]) for host in hosts]

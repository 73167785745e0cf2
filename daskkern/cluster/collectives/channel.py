"""Messages of bytes from one rank of a gang to all others, in pieces, down a tree in which each host receives once."""

from collections.abc import Sequence

import numpy as np
from distributed.comm.addressing import get_address_host

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Channel
from daskkern.backend.tiles import slices
from daskkern.cluster.collectives.host_tree import TreeNode, host_tree
from daskkern.cluster.collectives.transport import PeerTransport

PIECE_BYTES = 1 << 20
_ALIGNMENT = 8
_OPERATION = "message"


class PeerChannel(Channel):
    """A channel over Dask's own comms.

    A rank passes each piece on to at most two others, or to three if one of them is on its host, down the tree of
    :mod:`daskkern.cluster.collectives.host_tree`. In the binomial tree of a broadcast the root sends log2 W copies, one
    after the other. That is fewer crossings for a single small array; for a stream of messages the bytes that one rank
    and one link have to send are the limit.

    Parameters
    ----------
    transport : PeerTransport
        One of a channel of its own.
    piece_bytes : int
        Bytes that travel together: a rank passes a piece on while the next one is in transit.
    """

    def __init__(self, transport: PeerTransport, piece_bytes: int = PIECE_BYTES) -> None:
        self.rank, self.size = transport.rank, transport.size
        self._piece_bytes = piece_bytes
        self._transport = transport
        self._hosts = [get_address_host(address) for address in transport.addresses]
        self._nodes: dict[int, TreeNode] = {}

    def send(self, parts: Sequence[HostArray]) -> None:
        for piece in framed(parts, self._piece_bytes):
            self._transport.begin()
            self._transport.push(self._node(self.rank).below, _OPERATION, piece)

    def receive(self, root: int) -> HostArray:
        node = self._node(root)
        assert node.above is not None
        whole, filled = np.empty(0, np.uint8), 0
        while not filled or filled < whole.size:
            self._transport.begin()
            (piece,) = self._transport.take([node.above], _OPERATION, patience=node.depth / 20)
            self._transport.push(node.below, _OPERATION, piece)
            if not filled:
                whole = np.empty(int(piece[:_ALIGNMENT].view(np.int64)[0]), np.uint8)
            whole[filled : filled + piece.size] = piece
            filled += piece.size
        return whole[_ALIGNMENT:]

    def close(self) -> None:
        self._transport.mailbox.close_channel(self._transport.channel)

    def starving(self, starving: bool) -> None:
        self._transport.mailbox.starving = self._transport.channel if starving else None

    def _node(self, root: int) -> TreeNode:
        """Return this rank's place in the tree of a root."""
        if root not in self._nodes:
            self._nodes[root] = host_tree(self._hosts, root)[self.rank]
        return self._nodes[root]


def framed(parts: Sequence[HostArray], piece_bytes: int = PIECE_BYTES) -> list[HostArray]:
    """Return the pieces of a message: its number of bytes, and each of the arrays at a multiple of 8 bytes."""
    sizes = [-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in parts]
    whole = np.empty(_ALIGNMENT + sum(sizes), np.uint8)
    whole[:_ALIGNMENT] = np.frombuffer(np.int64(whole.size).tobytes(), np.uint8)
    at = _ALIGNMENT
    for part, size in zip(parts, sizes, strict=True):
        whole[at : at + part.nbytes] = part.reshape(-1).view(np.uint8)
        whole[at + part.nbytes : at + size] = 0
        at += size
    return [whole[piece] for piece in slices(whole.size, piece_bytes)]

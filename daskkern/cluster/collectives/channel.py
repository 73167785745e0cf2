"""Messages of bytes from one rank of a gang to all others, in pieces, down a tree in which a rank sends two copies."""

from collections.abc import Sequence

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Channel
from daskkern.backend.tiles import slices
from daskkern.cluster.collectives.transport import PeerTransport

PIECE_BYTES = 1 << 20
_ALIGNMENT = 8
_OPERATION = "message"


class PeerChannel(Channel):
    """A channel over Dask's own comms.

    A rank passes each piece on to at most two others: with the root as place 0, those at places 2 k + 1 and 2 k + 2
    follow place k. In the binomial tree of a broadcast the root sends log2 W copies, one after the other. That is fewer
    crossings for a single small array; for a stream of messages the bytes that one rank has to send are the limit.

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

    def send(self, parts: Sequence[HostArray]) -> None:
        for piece in framed(parts, self._piece_bytes):
            self._transport.begin()
            self._transport.push(self._below(self.rank), _OPERATION, piece)

    def receive(self, root: int) -> HostArray:
        above, below, depth = self._above(root), self._below(root), ((self.rank - root) % self.size + 1).bit_length()
        whole, filled = np.empty(0, np.uint8), 0
        while not filled or filled < whole.size:
            self._transport.begin()
            (piece,) = self._transport.take([above], _OPERATION, patience=depth / 20)
            self._transport.push(below, _OPERATION, piece)
            if not filled:
                whole = np.empty(int(piece[:_ALIGNMENT].view(np.int64)[0]), np.uint8)
            whole[filled : filled + piece.size] = piece
            filled += piece.size
        return whole[_ALIGNMENT:]

    def close(self) -> None:
        self._transport.mailbox.close_channel(self._transport.channel)

    def starving(self, starving: bool) -> None:
        self._transport.mailbox.starving = self._transport.channel if starving else None

    def _above(self, root: int) -> int:
        place = (self.rank - root) % self.size
        return ((place - 1) // 2 + root) % self.size

    def _below(self, root: int) -> list[int]:
        place = (self.rank - root) % self.size
        return [(child + root) % self.size for child in (2 * place + 1, 2 * place + 2) if child < self.size]


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

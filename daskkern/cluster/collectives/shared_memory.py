"""Sums of small arrays through memory that the ranks of one host share, instead of messages.

A message between two processes of one host passes two event loops and takes about a millisecond; a write to shared
memory takes microseconds. Each rank copies its array into a slot of its own and raises a counter, waits for the
counters of the others, and adds all slots itself, along the tree of :mod:`daskkern.backend.summation`: the bits are
those of every other algorithm. Deadlines, aborts and the question whether a peer is still at work are those of
messages.

The memory belongs to one generation of one fit. Its file has no name once all ranks have opened it, so that nothing is
left behind, however they end.
"""

import os
import platform
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path

import dask
import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import DTYPES

SHARED = "shared memory"
"""Name of this algorithm in the timing breakdown of a fit."""

MEMORY_BYTES = 16 << 20
"""Size of the memory of one fit on a host; Docker gives a container 64 MB by default."""

N_REGIONS = 3
"""Communicators that can use the memory: that of all ranks, of a group of them, and across the groups."""

_FOLDER = Path("/dev/shm")
_PREFIX = "daskkern-sums-"
_STALE_S = 3600.0
_LINE = 64
"""Bytes of a cache line. Each counter, and the header of each slot, has one of its own."""
_MOST_AXES = 6
_YIELD_S = 1e-4
_LONGEST_PAUSE_S = 1e-3
_OPERATION = "allreduce"

Token = HostArray
"""Two int64 numbers that name a file; zeros stand for none."""


def no_token() -> Token:
    return np.zeros(2, np.int64)


class HostMemory:
    """Memory of one host, mapped by each of its ranks.

    Parameters
    ----------
    mapped : mmap
        `MEMORY_BYTES` bytes that were zeros before any rank used them.
    size : int
        The number of ranks.
    """

    def __init__(self, mapped: mmap, size: int) -> None:
        self._bytes: HostArray = np.frombuffer(mapped, np.uint8)
        self._size = size

    @staticmethod
    def create() -> Token:
        """Make a file for the memory and return its token, or :func:`no_token` where that cannot be.

        Only on x86-64, which makes writes visible to other processors in program order: no memory barrier separates an
        array from its counter. Not if ``daskkern.shared-memory`` is false in the Dask configuration of rank 0's worker.
        """
        if not dask.config.get("daskkern.shared-memory", True):
            return no_token()
        if platform.machine().lower() not in ("x86_64", "amd64") or not _FOLDER.is_dir():
            return no_token()
        token = np.frombuffer(secrets.token_bytes(16), np.int64)
        path = _path(token)
        try:
            _remove_stale()
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return no_token()
        try:
            os.posix_fallocate(file, 0, MEMORY_BYTES)  # else a full file system ends a process that writes
            return token
        except OSError:
            HostMemory.unlink(token)
            return no_token()
        finally:
            os.close(file)

    @classmethod
    def open(cls, token: Token, size: int) -> "HostMemory | None":
        """Return the memory of a token, or None where this process does not see its file: in another container."""
        if not token.any():
            return None
        try:
            file = os.open(_path(token), os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if os.fstat(file).st_uid != os.getuid() or os.fstat(file).st_size != MEMORY_BYTES:
                return None
            return cls(mmap(file, MEMORY_BYTES), size)
        except (OSError, ValueError):
            return None
        finally:
            os.close(file)

    @staticmethod
    def unlink(token: Token) -> None:
        """Take the file's name away; who has opened it keeps the memory."""
        if token.any():
            with suppress(OSError):
                _path(token).unlink()

    def sums(self, region: int, transport: PeerTransport, ranks: Sequence[int]) -> "SharedSums | None":
        """Return the sums of one communicator; None if all regions are taken, or if its ranks are not evenly spaced.

        Parameters
        ----------
        region : int
            0 for all ranks; every rank gives the same number to the same communicator.
        ranks : sequence of int
            The ranks of the gang that take part.
        """
        step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        evenly_spaced = range(ranks[0], ranks[-1] + 1, step) if step > 0 else range(0)
        if region >= N_REGIONS or list(ranks) != list(evenly_spaced):
            return None
        length = MEMORY_BYTES // N_REGIONS // _LINE * _LINE
        part = self._bytes[region * length : (region + 1) * length]
        return SharedSums(_Region.of(part, self._size, slice(ranks[0], ranks[-1] + 1, step)), transport)


@dataclass(frozen=True)
class _Region:
    """The memory of one communicator.

    Attributes
    ----------
    counters : ndarray, shape (n_ranks,), int64
        How many sums each rank has given its array to.
    headers : ndarray, shape (2, n_ranks, 8), int64
        dtype, number of axes and shape of each slot's array.
    slots : ndarray, shape (2, n_ranks, slot_bytes), uint8
        Two slots for each rank, used in turn.
    """

    counters: HostArray
    headers: HostArray
    slots: HostArray

    @classmethod
    def of(cls, memory: HostArray, size: int, ranks: slice) -> "_Region":
        """Lay out a region for `size` ranks, and return the part of some of them."""
        heads = size * 3 * _LINE
        slot_bytes = (memory.size - heads) // (2 * size) // _LINE * _LINE
        numbers = memory[:heads].view(np.int64).reshape(3, size, _LINE // 8)
        slots = memory[heads : heads + 2 * size * slot_bytes].reshape(2, size, slot_bytes)
        return cls(numbers[0, ranks, 0], numbers[1:, ranks], slots[:, ranks])

    def array(self, place: tuple[int, int]) -> HostArray:
        """Return the array in a slot, as a view."""
        dtype, n_axes, *shape = (int(n) for n in self.headers[place])
        return np.ndarray(tuple(shape[:n_axes]), DTYPES[dtype], self.slots[place].data)


class SharedSums:
    """The sums of one communicator, each of which is finished before the next one begins.

    Two slots for each rank are enough: a rank that gives its array to a sum has finished the one before, for which all
    others had given theirs, having read those of the sum before that.
    """

    def __init__(self, region: _Region, transport: PeerTransport) -> None:
        self._region = region
        self._transport = transport
        self._n_sums = 0

    def holds(self, host: HostArray) -> bool:
        """Return whether an array fits into a slot; the same on all ranks that pass the same shape and dtype."""
        fits = host.nbytes <= self._region.slots.shape[2]
        return fits and host.ndim <= _MOST_AXES and host.dtype.name in DTYPES

    def begin(self, host: HostArray) -> Callable[[], HostArray]:
        """Give this rank's array to the next sum, and return the function that waits for the others and adds."""
        self._n_sums += 1
        self._transport.begin()
        turn, rank, region = self._n_sums % 2, self._transport.rank, self._region
        region.headers[turn, rank, : 2 + host.ndim] = DTYPES.index(host.dtype.name), host.ndim, *host.shape
        region.array((turn, rank))[...] = host
        region.counters[rank] = self._n_sums

        def late() -> HostArray:
            return np.flatnonzero(region.counters < self._n_sums)

        def finish() -> HostArray:
            self._transport.await_others(late, _pause, _OPERATION)
            parts = [region.array((turn, other)) for other in range(self._transport.size)]
            for source, part in enumerate(parts):
                self._transport.same(source, part, host, _OPERATION)
            return add_in_order(parts)

        return finish


def _pause(waited_s: float) -> None:
    """Let others run: the longer this rank has waited, the longer. A pause of 0 s gives way to who is ready to run."""
    time.sleep(0 if waited_s < _YIELD_S else min(_LONGEST_PAUSE_S, waited_s / 10))


def _path(token: Token) -> Path:
    return _FOLDER / f"{_PREFIX}{token.tobytes().hex()}"


def _remove_stale() -> None:
    """Remove files whose ranks were killed before all of them had opened theirs."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            stat = path.stat()
            if stat.st_uid == os.getuid() and time.time() - stat.st_mtime > _STALE_S:
                path.unlink()

"""Memory that the ranks of one host share: two slots for the array of each rank, and counters.

The memory belongs to one generation of one fit. Its file has no name once all ranks have opened it, so that nothing is
left behind, however they end. :mod:`daskkern.cluster.collectives.shared_sums` takes sums in it.
"""

import os
import platform
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap
from pathlib import Path

import dask
import numpy as np

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.wire import DTYPES

MEMORY_BYTES = 16 << 20
"""Size of the memory of one fit on a host; Docker gives a container 64 MB by default."""

N_REGIONS = 3
"""Communicators that can use the memory: that of all ranks, of a group of them, and across the groups."""

_FOLDER = Path("/dev/shm")
_PREFIX = "daskkern-sums-"
_STALE_S = 3600.0
_LINE = 64
"""Bytes of a cache line. Each counter, and the header of each slot, has one of its own."""
_HEADS = 4
"""Cache lines of each rank besides its slots: two counters and two headers."""
_MOST_AXES = 5

Token = HostArray
"""Two int64 numbers that name a file; zeros stand for none."""


def no_token() -> Token:
    return np.zeros(2, np.int64)


def slot_bytes(size: int) -> int:
    """Return the bytes of the largest array that the memory of `size` ranks on a host has slots for."""
    region = MEMORY_BYTES // N_REGIONS // _LINE * _LINE
    return (region - size * _HEADS * _LINE) // (2 * size) // _LINE * _LINE


class HostMemory:
    """Memory of one host, mapped by each of its ranks.

    Parameters
    ----------
    mapped : mmap
        `MEMORY_BYTES` bytes that were zeros before any rank used them.
    size : int
        The number of ranks on the host.
    """

    def __init__(self, mapped: mmap, size: int) -> None:
        self._bytes: HostArray = np.frombuffer(mapped, np.uint8)
        self._size = size

    @staticmethod
    def create() -> Token:
        """Make a file for the memory and return its token, or :func:`no_token` where that cannot be.

        Only on x86-64, which makes writes visible to other processors in program order: no memory barrier separates an
        array from its counter. Not if ``daskkern.shared-memory`` is false in the Dask configuration of this worker.
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
        """Remove the file's name; processes that have opened it keep the memory."""
        if token.any():
            with suppress(OSError):
                _path(token).unlink()

    def slots(self, region: int, places: Sequence[int]) -> "HostSlots | None":
        """Return the slots of one communicator; None if all regions are taken.

        Parameters
        ----------
        region : int
            0 for the communicator of all ranks; every rank gives the same number to the same communicator.
        places : sequence of int
            Which of the host's ranks take part.
        """
        if region >= N_REGIONS:
            return None
        length = MEMORY_BYTES // N_REGIONS // _LINE * _LINE
        return HostSlots(self._bytes[region * length : (region + 1) * length], self._size, places)


class HostSlots:
    """The memory of one communicator on one host: two slots for each of its ranks, used in turn.

    A slot holds an array with its dtype, its shape and the number of its round. Two counters of each rank say up to
    which sum it has given its term, and up to which its slot has the total instead.

    Parameters
    ----------
    memory : ndarray of uint8
        The bytes of a region.
    size : int
        The number of ranks on the host.
    places : sequence of int
        The numbers, among them, of the ranks of the communicator; from here on they are numbered from 0.
    """

    def __init__(self, memory: HostArray, size: int, places: Sequence[int]) -> None:
        heads, each = size * _HEADS * _LINE, slot_bytes(size)
        numbers = memory[:heads].view(np.int64).reshape(_HEADS, size, _LINE // 8)
        self._places = np.asarray(places, int)
        self._given, self._totals, self._headers = numbers[0, :, 0], numbers[1, :, 0], numbers[2:]
        self._slots = memory[heads : heads + 2 * size * each].reshape(2, size, each)

    def have_room_for(self, host: HostArray) -> bool:
        """Return whether an array fits into a slot; the same on all ranks that pass the same shape and dtype."""
        fits = host.nbytes <= self._slots.shape[2]
        return fits and host.ndim <= _MOST_AXES and host.dtype.name in DTYPES

    def give(self, rank: int, n_sum: int, term: HostArray, round_: int) -> None:
        """Write a rank's term of sum `n_sum`, the first of which is 1, in a round of collectives."""
        self._write(rank, n_sum, term)
        self._headers[n_sum % 2, self._places[rank], -1] = round_
        self._given[self._places[rank]] = n_sum

    def give_total(self, rank: int, n_sum: int, total: HostArray) -> None:
        """Write the total of a sum in place of a rank's term."""
        self._write(rank, n_sum, total)
        self._totals[self._places[rank]] = n_sum

    def missing(self, n_sum: int) -> HostArray:
        """Return the ranks that have not given their terms of a sum."""
        return np.flatnonzero(self._given[self._places] < n_sum)

    def has_total(self, rank: int, n_sum: int) -> bool:
        return bool(self._totals[self._places[rank]] >= n_sum)

    def round_of(self, rank: int, n_sum: int) -> int:
        """Return the round in which a rank gave its term."""
        return int(self._headers[n_sum % 2, self._places[rank], -1])

    def array(self, rank: int, n_sum: int) -> HostArray:
        """Return the array in a rank's slot, as a view."""
        slot = n_sum % 2, self._places[rank]
        dtype, n_axes, *shape = (int(n) for n in self._headers[slot][:-1])
        return np.ndarray(tuple(shape[:n_axes]), DTYPES[dtype], self._slots[slot].data)

    def arrays(self, n_sum: int) -> list[HostArray]:
        """Return the arrays of all ranks, as views."""
        return [self.array(rank, n_sum) for rank in range(len(self._places))]

    def _write(self, rank: int, n_sum: int, array: HostArray) -> None:
        header = self._headers[n_sum % 2, self._places[rank]]
        header[: 2 + array.ndim] = DTYPES.index(array.dtype.name), array.ndim, *array.shape
        self.array(rank, n_sum)[...] = array


def _path(token: Token) -> Path:
    return _FOLDER / f"{_PREFIX}{token.tobytes().hex()}"


def _remove_stale() -> None:
    """Remove files whose ranks were killed before all of them had opened theirs."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            stat = path.stat()
            if stat.st_uid == os.getuid() and time.time() - stat.st_mtime > _STALE_S:
                path.unlink()

"""Caches of kernel blocks, filled in the first epoch: in memory, or in a scratch file of the rank."""

import itertools
import mmap
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import to_host
from daskkern.training.feeding.block_files import BlockFile, Fence, block_file
from daskkern.training.feeding.scratch import scratch_folder
from daskkern.training.planning.memory_plan import IN_TRANSIT, MemoryPlan
from daskkern.training.run.settings import FitSettings

_AHEAD = IN_TRANSIT - 1


class BlockCache(ABC):
    """A cache of kernel blocks by batch number. A block comes back bit for bit as it was put in.

    In the first epoch: ``out = place(...)``, compute the block into it, ``put(index, out)``. Later: ``get(index)``. The
    returned array belongs to the caller until the next call of `get` or `place`.
    """

    failed = 0
    """Number of blocks that could not be stored although there should have been room."""

    @abstractmethod
    def has(self, index: int) -> bool:
        """Return whether the block of this batch is cached."""

    @abstractmethod
    def get(self, index: int) -> Array:
        """Return the block of batch `index`, (m, p_r)."""

    @abstractmethod
    def place(self, shape: tuple[int, int]) -> Array | None:
        """Return an array to compute a block into, or None without room for it."""

    @abstractmethod
    def put(self, index: int, block: Array) -> None:
        """Cache a block that was computed into the array from `place`."""

    @abstractmethod
    def begin(self, order: Sequence[int]) -> None:
        """Prepare for an epoch that visits the batches in this order."""

    @abstractmethod
    def close(self) -> None:
        """Release memory and files."""


class MemoryBlocks(BlockCache):
    """A cache in memory, on the device where there is one, of up to `budget` bytes.

    The blocks share one array, allocated at the first block: the system never commits the pages that stay unused.
    """

    def __init__(self, budget: int, dtype: str, xp: ModuleType) -> None:
        self._room = budget // np.dtype(dtype).itemsize
        self._dtype, self._xp = dtype, xp
        self._memory: Array = None
        self._end = 0
        self._blocks: dict[int, Array] = {}

    def has(self, index: int) -> bool:
        return index in self._blocks

    def get(self, index: int) -> Array:
        return self._blocks[index]

    def place(self, shape: tuple[int, int]) -> Array | None:
        size = shape[0] * shape[1]
        if self._end + size > self._room:
            return None
        if self._memory is None:
            take = new_memory if self._xp is np else self._xp.empty
            self._memory = take(self._room, self._dtype)
        return self._memory[self._end : self._end + size].reshape(shape)

    def put(self, index: int, block: Array) -> None:
        self._end += int(block.size)
        self._blocks[index] = block

    def begin(self, order: Sequence[int]) -> None:
        del order

    def close(self) -> None:
        self._blocks.clear()
        self._memory = None


class DiskBlocks(BlockCache):
    """A cache in a scratch file.

    One thread writes blocks behind the first epoch and reads them ahead of the later ones: at most three are in memory
    besides the one in use. A full disk ends the caching, not the fit: blocks that were not written are recomputed.

    Parameters
    ----------
    budget : int
        Bytes of disk.
    file : BlockFile
        Closed together with the cache.
    xp : module
        The array namespace of the blocks.
    """

    def __init__(self, budget: int, file: BlockFile, xp: ModuleType) -> None:
        self._room, self._file, self._xp = budget, file, xp
        self._fits = xp is np or file.on_device  # blocks are computed into the buffers of the file
        self._places: dict[int, tuple[int, tuple[int, int]]] = {}
        self._end = 0
        self._thread = ThreadPoolExecutor(1, "daskkern-blocks")
        self._writes: deque[tuple[int, Array, Future[bool]]] = deque()
        self._coming: deque[int] = deque()
        self._reads: dict[int, Future[Array]] = {}
        self._buffers: deque[tuple[Array, Fence]] = deque()
        self._lent: Array | None = None

    def has(self, index: int) -> bool:
        return index in self._places

    def place(self, shape: tuple[int, int]) -> Array | None:
        self._take_back()
        size = shape[0] * shape[1]
        if size * self._file.dtype.itemsize > self._room:
            return None
        self._settle(max(0, _AHEAD - len(self._reads)))
        if not self._fits:
            return self._xp.empty(shape, self._file.dtype)
        self._lent = self._buffer(size)[0]
        return self._lent[:size].reshape(shape)

    def put(self, index: int, block: Array) -> None:
        buffer = to_host(block).reshape(-1) if self._lent is None else self._lent
        self._lent = None
        self._places[index] = (self._end, block.shape)
        write = self._thread.submit(self._write, self._end, buffer[: int(block.size)], self._file.fence())
        self._writes.append((index, buffer, write))
        self._room -= int(block.nbytes)
        self._end += -(-int(block.nbytes) // self._file.alignment) * self._file.alignment

    def begin(self, order: Sequence[int]) -> None:
        self._settle(0)
        self._drop_reads()
        self._coming = deque(index for index in order if index in self._places)
        self._read_ahead()

    def get(self, index: int) -> Array:
        self._take_back()
        self._settle(0)  # only an epoch that computes blocks which an earlier one missed has any
        if index in self._coming:
            while self._coming.popleft() != index:
                pass
        read = self._reads.pop(index, None) or self._submit(index)
        self._read_ahead()
        self._lent = read.result()
        block = self._lent[: self._size(index)].reshape(self._places[index][1])
        return block if self._fits else self._xp.asarray(block)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._reads.clear()
        self._writes.clear()
        self._buffers.clear()
        self._lent = None
        self._file.close()

    def _size(self, index: int) -> int:
        rows, columns = self._places[index][1]
        return rows * columns

    def _take_back(self) -> None:
        """End the caller's use of the block that was handed out."""
        if self._lent is not None:
            self._buffers.append((self._lent, self._file.fence()))
            self._lent = None

    def _buffer(self, size: int) -> tuple[Array, Fence]:
        """Return the least recently used buffer of at least `size` numbers, and a fence for its last use."""
        while self._buffers:
            buffer, free = self._buffers.popleft()
            if buffer.size >= size:
                return buffer, free
        return self._file.buffer(size), self._file.fence()

    def _read_ahead(self) -> None:
        for index in itertools.islice(self._coming, _AHEAD):
            if index not in self._reads:
                self._reads[index] = self._submit(index)

    def _submit(self, index: int) -> Future[Array]:
        size = self._size(index)
        return self._thread.submit(self._read, self._places[index][0], size, *self._buffer(size))

    def _drop_reads(self) -> None:
        for read in self._reads.values():
            if not read.cancel():
                self._buffers.append((read.result(), self._file.fence()))
        self._reads.clear()

    def _settle(self, most: int) -> None:
        """Wait until at most `most` blocks are still to be written. A failed write ends the caching."""
        while len(self._writes) > most:
            index, buffer, write = self._writes.popleft()
            self._buffers.append((buffer, self._file.fence()))
            if not write.result():
                del self._places[index]
                self._room, self.failed = 0, self.failed + 1

    def _write(self, at: int, block: Array, ready: Fence) -> bool:
        ready()
        return self._file.write(at, block)

    def _read(self, at: int, size: int, buffer: Array, free: Fence) -> Array:
        free()
        self._file.read(at, buffer[:size])
        return buffer


def new_memory(count: int, dtype: str) -> HostArray:
    """Return an uninitialised array of `count` numbers whose pages the system commits at first use.

    NumPy requests huge pages, which the system must assemble first: 0.8 GB took 2 to 5 s, against 1 to 2.5 s here.
    """
    size = count * np.dtype(dtype).itemsize
    if not size or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype)


def keep_blocks(plan: MemoryPlan, settings: FitSettings, xp: ModuleType) -> BlockCache:
    """Return the block cache of this rank, as planned."""
    if plan.disk:
        return DiskBlocks(plan.disk, block_file(scratch_folder(settings), settings.dtype, xp, plan.direct), xp)
    return MemoryBlocks(plan.kept, settings.dtype, xp)

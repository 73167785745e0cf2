"""Asynchronous copies from the host to a GPU while it computes, from pinned memory and on a separate stream."""

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend import csr
from daskkern.backend.device_rows import DeviceRows
from daskkern.backend.namespace import is_of_gpu, is_sparse

_SLOTS = 2
_ALIGNMENT = 256

Item = TypeVar("Item")
Arrived = Callable[[], tuple[Array, ...]]
"""Makes the current stream wait for the arrays, and returns them. Call it once, before their first use."""


class Uploads:
    """Copies of host arrays to the device of `xp`; with NumPy, the arrays themselves.

    Contiguous parts of arrays that :meth:`empty` has made are copied from where they lie: they must not change after
    that. Others go through one of two pinned buffers.

    A copy overlaps the computation of the GPU. Its target is allocated on the current stream, and the copy waits for
    all work queued on this stream before: earlier users of that memory are then done with it. A pinned buffer is
    overwritten only after the copy from it has ended. At most two uploads are in flight at a time. The target of an
    upload that is never used is held until its copy has ended: otherwise the memory would be given to other arrays, and
    the copy would write into them. For use by one thread.

    Parameters
    ----------
    xp : module
    """

    def __init__(self, xp: ModuleType) -> None:
        self._xp = xp
        self._stream = xp.cuda.Stream(non_blocking=True) if hasattr(xp, "cuda") else None
        self._lent = _LentMemory(xp)
        self._slots = deque(_Slot(xp, self._lent) for _ in range(_SLOTS))

    @property
    def ahead(self) -> int:
        """Number of uploads worth beginning before the one in use: none if nothing is copied."""
        return 0 if self._stream is None else _SLOTS - 1

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return a new array in memory that a GPU copies from, where there is some; from any thread."""
        made = None if self._stream is None else self._lent.array(shape, np.dtype(dtype))
        return np.empty(shape, dtype) if made is None else made

    def begin(self, *arrays: Array) -> Arrived:
        """Begin to copy `arrays`, dense or CSR; return a function to call before their use.

        None stays None, and arrays of the device stay what they are.
        """
        if self._stream is None:
            return lambda: arrays
        xp, stream = self._xp, self._stream
        given = [_parts(array) for array in arrays]
        slot = self._slots[0]
        self._slots.rotate(-1)
        staged = slot.staged([part for parts in given for part in parts], any(map(is_sparse, arrays)))
        targets = [xp.empty(array.shape, array.dtype) for array in staged]
        stream.wait_event(xp.cuda.get_current_stream().record())
        for target, array in zip(targets, staged, strict=True):
            target.set(array, stream=stream)
        slot.copied, slot.targets = stream.record(), targets
        arrived = iter(targets)
        made = [
            _of_parts(array, parts, [next(arrived) for _ in parts], xp)
            for array, parts in zip(arrays, given, strict=True)
        ]
        return _arrival(xp, slot, tuple(made))

    def close(self) -> None:
        """Wait for the copies in flight."""
        for slot in self._slots:
            slot.wait()


def _parts(array: Array) -> tuple[HostArray, ...]:
    """Return what is copied of an array: of CSR rows, once they are canonical, their parts, and of None nothing."""
    if array is None or is_of_gpu(array):
        return ()
    return csr.parts_of(csr.checked(array, csr.float_dtype(array.dtype))) if is_sparse(array) else (array,)


def _of_parts(array: Array, parts: tuple[HostArray, ...], targets: list[Array], xp: ModuleType) -> Array:
    """Return the array on the device, made of what was copied."""
    if array is None or is_of_gpu(array):
        return array
    if not is_sparse(array):
        return targets[0]
    data, indices, indptr = targets
    return DeviceRows(xp, data, indices, indptr, parts[-1], tuple(array.shape))


def pinned_memory(xp: ModuleType, n_bytes: int) -> Any:
    """Return a buffer of `n_bytes` page-locked bytes, which are freed with the last reference to it.

    Not from CuPy's pool, which takes the next power of two and keeps it until the process ends.
    """
    return xp.cuda.PinnedMemoryPointer(xp.cuda.PinnedMemory(n_bytes), 0)


class _LentMemory:
    """Pinned memory of arrays, each lent until nothing refers to the array any more, and then lent again."""

    def __init__(self, xp: ModuleType) -> None:
        self._xp, self._lock = xp, threading.RLock()  # arrays may be collected while it is held
        self._free: list[tuple[Any, int]] = []
        self._most = 0
        self._places: dict[int, int] = {}

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray | None:
        """Return an array in pinned memory; None if it has no values, or there is no such memory left."""
        size = math.prod(shape) * dtype.itemsize
        try:
            memory, found = self._taken(size) if size else (None, 0)
        except RuntimeError:  # CUDA's words for memory that cannot be pinned
            return None
        if memory is None:
            return None
        flat = np.frombuffer(memory, np.uint8, size)
        address = flat.ctypes.data
        with self._lock:
            self._places[address] = size
        weakref.finalize(flat, self._give_back, address, memory, found).atexit = False
        return flat.view(dtype).reshape(shape)

    def has(self, array: HostArray) -> bool:
        """Return whether an array is contiguous in memory that is lent."""
        if not (array.size and array.flags.c_contiguous):
            return False
        address = array.ctypes.data
        with self._lock:
            return any(at <= address < at + size for at, size in list(self._places.items()))

    def _taken(self, size: int) -> tuple[Any, int]:
        """Return memory of `size` bytes or more, that has been given back or new: as much as was ever asked for."""
        with self._lock:
            self._free = [free for free in self._free if free[1] >= size]
            if self._free:
                return self._free.pop()
            self._most = most = max(size, self._most)
        return pinned_memory(self._xp, most), most

    def _give_back(self, address: int, memory: Any, size: int) -> None:
        with self._lock:
            del self._places[address]
            self._free.append((memory, size))


class _Slot:
    """A pinned buffer, and the event of the last copy from it."""

    def __init__(self, xp: ModuleType, lent: _LentMemory) -> None:
        self._xp, self._lent = xp, lent
        self._sent: list[HostArray] = []
        self._memory: Any = None
        self._size = 0
        self.copied: Any = None
        self.targets: list[Array] = []

    def wait(self) -> None:
        """Return when the last copy from it has ended."""
        if self.copied is not None:
            self.copied.synchronize()
        self.targets, self._sent = [], []

    def staged(self, arrays: list[HostArray], varies: bool) -> list[HostArray]:
        """Return `arrays` in the buffer, which grows when it must, by more where their size `varies`.

        Those in memory that is lent stay there. Waits for the last copy from it.
        """
        self.wait()
        stay = [self._lent.has(array) for array in arrays]
        sizes = [0 if there else array.nbytes for array, there in zip(arrays, stay, strict=True)]
        starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]).tolist()
        if starts[-1] > self._size:
            size = starts[-1] + (starts[-1] // 8 if self._size and varies else 0)
            self._memory = None  # before the larger one is taken
            self._memory, self._size = pinned_memory(self._xp, size), size
        placed = zip(starts, arrays, stay, strict=False)
        self._sent = [array if there else self._place(start, array) for start, array, there in placed]
        return self._sent

    def _place(self, start: int, array: HostArray) -> HostArray:
        if not array.size:
            return array
        place = np.frombuffer(self._memory, array.dtype, array.size, start).reshape(array.shape)
        place[...] = array
        return place


def _arrival(xp: ModuleType, slot: _Slot, made: tuple[Array, ...]) -> Arrived:
    copied, targets = slot.copied, slot.targets

    def arrived() -> tuple[Array, ...]:
        xp.cuda.get_current_stream().wait_event(copied)
        if slot.targets is targets:
            slot.targets = []  # later work of the current stream on the memory follows the copy
        return made

    return arrived


def begun_ahead(items: Iterable[Item], ahead: int) -> Iterator[Item]:
    """Yield `items` with a delay of `ahead` items, so that the producer has begun the next ones by then."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        del item  # frees the reader's memory before more is read
        if len(waiting) > ahead:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()

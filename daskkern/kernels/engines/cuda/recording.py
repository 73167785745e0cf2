"""CUDA graphs: work on a GPU that is captured once and then launched by a single call of the host.

A step of few rows takes as long as the host needs for its launches: on an H200, 33 of them took 1.06 ms one by one and
0.07 ms as a graph, of which the host was busy for 3 us.

Recorded work reads and writes at fixed places. Those that the caller fills are :meth:`GraphRecorder.place` and
:meth:`GraphRecorder.number`. What it allocates on its way comes from a pool of its own, whose memory each recording
uses from its beginning: nothing that lasts may lie there.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from daskkern.arrays import Array
from daskkern.kernels.engines.cuda.cublas import DirectCublas

WORKSPACE_BYTES = 32 << 20
"""Bytes that a recorder holds for cuBLAS, which takes as many by itself on an H100."""
_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice
_MOST_REHEARSALS = 6

_current: ContextVar["GraphRecorder | None"] = ContextVar("recorder", default=None)


def current_recorder() -> "GraphRecorder | None":
    """Return the recorder that is recording in this context, or None."""
    return _current.get()


class GraphRecorder:
    """Records work on the current GPU, and gives it to the GPU again.

    For use by one thread. Everything recorded is held, with its memory, as long as the recorder.

    Parameters
    ----------
    xp : module
        CuPy.
    """

    def __init__(self, xp: ModuleType) -> None:
        self._xp = xp
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._memory = _Memory(xp, self._stream)
        self._pool = xp.cuda.MemoryPool(self._memory.keep)
        self._places: dict[str, Array] = {}
        self._read_only: set[str] = set()
        self._numbers: dict[str, float] = {}
        self._graphs: dict[Hashable, Any] = {}
        self._held: list[Any] = []

    @cached_property
    def cublas(self) -> DirectCublas:
        """CuBLAS for recorded work."""
        workspace = self._xp.empty(WORKSPACE_BYTES, np.uint8)
        return DirectCublas(self._xp, self._stream.ptr, workspace)

    def place(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, read_only: bool = False) -> Array:
        """Return the array of this name that recorded work may use: zeros when it is made.

        Raises
        ------
        ValueError
            Where it has another shape or dtype.
        """
        if name not in self._places:
            self._places[name] = self._xp.zeros(shape, dtype)
            self._read_only |= {name} if read_only else set()
        made = self._places[name]
        if made.shape != shape or made.dtype != np.dtype(dtype):
            raise ValueError(f"got shape {shape} and {np.dtype(dtype)} for {name!r}; it has {made.shape}, {made.dtype}")
        return made

    def number(self, name: str, value: float, dtype: DTypeLike) -> Array:
        """Return the array () of this name, and set it to `value` where it is another."""
        place = self.place(name, (), dtype)
        if self._numbers.get(name) != value:
            place.fill(value)
            self._numbers[name] = value
        return place

    def hold(self, value: Any) -> None:
        """Keep something that recorded work refers to."""
        self._held.append(value)

    def copy(self, source: Array, target: Array) -> None:
        """Copy between arrays of one shape on the current stream."""
        if source.dtype == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous:
            cuda = self._xp.cuda
            address = cuda.get_current_stream().ptr
            cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, _TO_DEVICE, address)
        else:
            target[...] = source

    def copied(self, source: Array) -> Array:
        """Return a copy, made on the current stream."""
        made = self._xp.empty(source.shape, source.dtype)
        self.copy(source, made)
        return made

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Run `work` on the current stream: record it under its key first, where that has not been done.

        The work must give a GPU the same at every call: what differs, it reads at places. It must not wait for the
        GPU. Before it is recorded, it runs three times or more: there it compiles, makes what lasts, and takes memory.
        What the places held is then put back.

        Raises
        ------
        Exception
            Whatever a call raises that cannot be recorded. The places that were there are then as before.
        """
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._recorded(work)
        graph.launch(self._xp.cuda.get_current_stream())

    def _recorded(self, work: Callable[[], None]) -> Any:
        current, stream, cuda = self._xp.cuda.get_current_stream(), self._stream, self._xp.cuda
        before = [(place, place.copy()) for name, place in self._places.items() if name not in self._read_only]
        stream.wait_event(current.record())
        token = _current.set(self)
        try:
            with stream:
                try:
                    with self._memory.of(current), cuda.using_allocator(self._memory.take):
                        work()  # makes what lasts, outside the pool
                    with self._memory.of(current), cuda.using_allocator(self._pool.malloc):
                        self._rehearse(work)
                finally:
                    stream.synchronize()
                with self._memory.of(current, waits=False), cuda.using_allocator(self._pool.malloc):
                    return self._captured(work)
        finally:
            _current.reset(token)
            for place, content in before:
                place[...] = content

    def _rehearse(self, work: Callable[[], None]) -> None:
        """Run the work until the pool has all memory that it needs."""
        for _ in range(_MOST_REHEARSALS):
            before = self._memory.count
            work()
            if self._memory.count == before:
                return

    def _captured(self, work: Callable[[], None]) -> Any:
        self._stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):  # ending a capture that has failed raises, too
                self._stream.end_capture()
            raise
        return self._stream.end_capture()


class _Memory:
    """Memory of the current allocator for work on a stream that is recorded.

    Pools such as RMM's and CuPy's own keep account of streams, and make one wait for another whose memory it is given.
    A stream that is recorded cannot, so that they never see it: memory is taken, and given back, as that of the stream
    which has the work done.

    Parameters
    ----------
    xp : module
        CuPy.
    stream
        The one that is recorded.
    """

    def __init__(self, xp: ModuleType, stream: Any) -> None:
        self._stream = stream
        self._allocator = xp.cuda.get_allocator()
        self._owner: Any = None
        self._waits = True
        self._kept: list[Any] = []

    @property
    def count(self) -> int:
        """How often memory was taken that is kept."""
        return len(self._kept)

    @contextmanager
    def of(self, owner: Any, *, waits: bool = True) -> Iterator[None]:
        """Within the context, memory is that of the stream `owner`. With `waits`, each stream waits for what the other
        did with it; what is only recorded comes after that anyway.
        """
        self._owner, self._waits = owner, waits
        try:
            yield
        finally:
            self._owner = None

    def take(self, size: int) -> Any:
        """Return memory until it is deleted."""
        with self._owner:
            if self._waits:
                self._owner.wait_event(self._stream.record())
            pointer = self._allocator(size)
            if self._waits:
                self._stream.wait_event(self._owner.record())
        return pointer

    def keep(self, size: int) -> Any:
        """Return memory that is not given back: a pool that is short of memory would do so with what is unused, and
        all of a recording's looks unused.
        """
        pointer = self.take(size)
        self._kept.append(pointer)
        return pointer

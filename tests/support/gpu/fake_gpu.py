"""A stand-in for CuPy on one GPU: the calls that daskkern makes, on the host, for whole fits without a GPU.

Kernels are the same CUDA text compiled as C++ (:mod:`tests.support.gpu.cuda_on_host`), cuBLAS is NumPy behind the same
addresses and strides, and a stream other than the default one does nothing until somebody waits for it. There is no
sparse matrix, and NCCL only where :meth:`FakeGpu.gpus_of_threads` adds it. :data:`SIGNATURES` is compared with the real
CuPy where that is installed.
"""

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from daskkern.kernels.engines.cuda import cublas
from daskkern.kernels.engines.cuda.device import device_of
from tests.support.gpu import fake_cublas, fake_graphs
from tests.support.gpu.cuda_on_host import HostDevice
from tests.support.gpu.fake_arrays import CONSTANTS, CREATORS, NAMES, FakeArray, called, launched, on_device, waited
from tests.support.gpu.fake_cupy import Fake
from tests.support.gpu.fake_pool import FakePool

MEMORY = 8 << 30
SIGNATURES = {
    "asarray": ("a", "dtype"),
    "ndarray.get": (),
    "ndarray.set": ("arr", "stream"),
    "ndarray.astype": ("dtype", "copy"),
    "ndarray.sum": ("axis", "dtype"),
    "cuda.PinnedMemory": ("size",),
    "cuda.PinnedMemoryPointer": (),
    "cuda.MemoryPool.set_limit": ("size",),
    "cuda.get_current_stream": ("device_id",),
    "cuda.Stream": ("null", "non_blocking", "ptds"),
    "cuda.Stream.record": ("event",),
    "cuda.Stream.wait_event": ("event",),
    "cuda.Stream.synchronize": (),
    "cuda.Event": ("block", "disable_timing"),
    "cuda.Event.record": ("stream",),
    "cuda.Event.synchronize": (),
    "cuda.runtime.getDeviceProperties": ("device",),
    "cuda.runtime.deviceGetPCIBusId": ("device",),
    "cuda.runtime.setDevice": ("device",),
    "cuda.runtime.memGetInfo": (),
    "linalg.eigh": ("a",),
    "linalg.qr": ("a",),
    "linalg.solve": ("a", "b"),
    "RawModule": ("code",),
    "RawModule.get_function": ("name",),
    "RawKernel.__call__": ("grid", "block", "args"),
}
"""Names in CuPy, and the parameters that the stand-in takes there."""


_streams = threading.local()


class Stream:
    """What was put on a stream happens in order, and not before somebody waits for it."""

    ptr = 17

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._non_blocking = non_blocking

    def __enter__(self) -> "Stream":
        _streams.__dict__.setdefault("entered", []).append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        assert _streams.entered.pop() is self

    def begin_capture(self) -> None:
        if not self._non_blocking:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        fake_graphs.begin()

    def end_capture(self) -> fake_graphs.Graph:
        return fake_graphs.Graph(fake_graphs.end(), launched)

    @property
    def busy(self) -> bool:
        """Whether something is left to do."""
        return bool(self._waiting)

    def enqueue(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

    def record(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        event.reach()

    def synchronize(self) -> None:
        waited("stream")
        self.reach()

    def reach(self) -> None:
        """Do what was put on it so far."""
        while self._waiting:
            self._waiting.popleft()()


class Event:
    """A moment of a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._stream: Stream | None = None
        self.reached_at = 0.0

    def record(self, stream: Stream | None = None) -> None:
        self._stream, self.reached_at = stream, time.perf_counter()

    def synchronize(self) -> None:
        if self._stream is not None and self._stream.busy:
            waited("event")
        self.reach()

    def reach(self) -> None:
        """Let its stream come to it."""
        if self._stream is not None:
            self._stream.reach()

    @property
    def done(self) -> bool:
        self.reach()
        return True


class _Module:
    """A compiled CUDA text."""

    def __init__(self, gpu: "FakeGpu", code: str) -> None:
        self._gpu, self._code = gpu, code

    def get_function(self, name: str) -> Callable[..., None]:
        def launch(grid: tuple[int, int], block: tuple[int], args: tuple[Any, ...]) -> None:
            held = [argument.held if isinstance(argument, FakeArray) else argument for argument in args]
            if any(isinstance(argument, np.ndarray) for argument in args):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
            launched(name)
            work = partial(self._gpu.host.launch, self._code, name, grid, block[0], held)
            with self._gpu.lock:
                work()
            fake_graphs.record(work)

        return launch


class FakeGpu:
    """The module, and what it counts: `compiled` kernels go to `folder`."""

    def __init__(self, folder: Path) -> None:
        self.host = HostDevice(folder)
        self.lock = threading.RLock()
        self.uploads = 0
        self.module = self._module()

    def _module(self) -> ModuleType:
        cupy = ModuleType("cupy")
        names = {name: _function(getattr(np, name)) for name in NAMES}
        names |= {name: _creator(getattr(np, name)) for name in CREATORS}
        names |= {name: getattr(np, name) for name in CONSTANTS}
        cupy.__dict__.update(
            names, __version__="stand-in", ndarray=FakeArray, asarray=self._asarray, array=self._array,
            cuda=cuda_module(),
            RawModule=lambda code: _Module(self, code),
            get_default_memory_pool=lambda: SimpleNamespace(
                total_bytes=lambda: 1 << 20, free_bytes=lambda: 0, free_all_blocks=lambda: None
            ),
            get_default_pinned_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
            linalg=SimpleNamespace(**{name: _function(getattr(np.linalg, name)) for name in ("eigh", "qr", "solve")}),
        )  # fmt: skip
        return cupy

    def _asarray(self, a: Any, dtype: Any = None) -> FakeArray:
        if isinstance(a, FakeArray):
            return a if dtype is None or a.dtype == np.dtype(dtype) else on_device(a.held.astype(dtype))
        fake_graphs.refuse("copies from the host")
        self.uploads += 1
        launched("upload")
        made: FakeArray = on_device(np.array(a, dtype))
        return made

    def _array(self, a: Any) -> FakeArray:
        return a.copy() if isinstance(a, FakeArray) else self._asarray(a)

    @contextmanager
    def installed(self) -> Iterator[ModuleType]:
        """Within the context, this is what ``import cupy`` gives."""
        parts = {
            "cupy": self.module, "cupy.cuda": self.module.cuda, "cupy.cuda.nccl": self.module.cuda.nccl,
            "cupyx": _cupyx(),
        }  # fmt: skip
        library = fake_cublas.Library()
        before = {name: sys.modules.get(name) for name in parts}
        sys.modules.update(parts)
        loaded, cublas.cublas_library = cublas.cublas_library, lambda xp: library
        try:
            yield self.module
        finally:
            device_of.cache_clear()
            cublas.cublas_library = loaded
            for name, module in before.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module

    @contextmanager
    def gpus_of_threads(self) -> Iterator[Fake]:
        """Install the module with NCCL, and with a GPU for each number that a thread gives to ``setDevice``."""
        fake = Fake(at_once=True)
        fake.module()
        with self.installed() as module:
            runtime, before = module.cuda.runtime, module.cuda.nccl
            one = runtime.deviceGetPCIBusId
            runtime.deviceGetPCIBusId = lambda device: f"0000:{device + 1:02X}:00.0"
            module.cuda.nccl = sys.modules["cupy.cuda.nccl"] = fake.nccl
            try:
                yield fake
            finally:
                runtime.deviceGetPCIBusId, module.cuda.nccl = one, before


def _take(size: int) -> None:
    """Give memory of the device."""
    del size


def _cupyx() -> ModuleType:
    """Return ``cupyx``: NumPy raises in any case."""
    cupyx = ModuleType("cupyx")
    cupyx.__dict__["errstate"] = lambda *, linalg: nullcontext(linalg)
    return cupyx


def _function(work: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: called(work, *args, **kwargs)


def _creator(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes arrays. Those of ``empty`` are full of what must not be read."""

    def create(shape: Any, *args: Any, **kwargs: Any) -> Any:
        made = called(work, shape, *args, **kwargs)
        if work is np.empty:
            made.held.fill(np.nan if made.dtype.kind == "f" else 111)
        return made

    return create


def cuda_module() -> ModuleType:
    """Return ``cupy.cuda`` with one device."""
    cuda, nccl = ModuleType("cupy.cuda"), ModuleType("cupy.cuda.nccl")
    here, default = threading.local(), Stream()
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1,
        getDevice=lambda: getattr(here, "device", 0),
        setDevice=lambda device: setattr(here, "device", device),
        getDeviceProperties=lambda device: {"name": b"Stand-in", "uuid": b"", "multiProcessorCount": 1},
        deviceGetPCIBusId=lambda device: "0000:3B:00.0",
        memGetInfo=lambda: (MEMORY, MEMORY),
        runtimeGetVersion=lambda: 12090,
        driverGetVersion=lambda: 12090,
        memcpyAsync=_copied,
        **{name: number for name, (number, _) in fake_cublas.TYPES.items()},
    )
    nccl.__dict__.update(available=True)  # ranks of one GPU take the host
    cuda.__dict__.update(
        runtime=runtime, Event=Event, Stream=Stream, nccl=nccl,
        get_current_stream=lambda device_id=-1: (getattr(_streams, "entered", None) or [default])[-1],
        using_allocator=fake_graphs.using_allocator,
        PinnedMemory=bytearray, PinnedMemoryPointer=lambda mem, offset: memoryview(mem)[offset:],
        get_allocator=lambda: getattr(here, "allocator", _take),
        set_allocator=lambda allocator: setattr(here, "allocator", allocator),
        MemoryPool=FakePool,
        get_elapsed_time=lambda first, last: (last.reached_at - first.reached_at) * 1e3,
        cublas=fake_cublas.module(),
        device=SimpleNamespace(get_cublas_handle=lambda: 5),
    )  # fmt: skip
    return cuda


def _copied(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    """Do what cudaMemcpyAsync does between places of a device."""
    assert kind == 3
    launched("memcpy")
    ctypes.memmove(dst, src, size)
    fake_graphs.record(partial(ctypes.memmove, dst, src, size))

"""A stand-in for the parts of CuPy that NCCL collectives use: arrays in host memory, GPUs that are threads.

Operations run beside the caller, as on a stream, and never end when a peer does not come. What is done with arrays is
done after them, as on their stream, and does not tell the caller when an operation was aborted: its arrays then hold
what they held before. As NCCL's do, the first operation of a kind and the release of a communicator wait in the call
itself until all ranks have made it, or until an abort.
"""

import ctypes
import itertools
import threading
import time
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

BYTES = {7: 4, 8: 8, 4: 8}


_here = threading.local()
"""The last operation of the thread's stream, its device, and the operations of an open group."""
_kept: list[Any] = []
"""Arrays whose address was asked for: memory of a stream is not given to others before the stream has done with it."""


def reached() -> None:
    """Wait until the stream of this thread has done what it was given."""
    last = getattr(_here, "last", None)
    if last is not None:
        last.join()


class Memory:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class FakeArray(np.ndarray):
    """An array whose ``data.ptr`` is its address, and which must be asked for its copy on the host."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        _kept.append(self)
        return Memory(self.ctypes.data)

    def get(self) -> np.ndarray:
        reached()
        return np.array(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        reached()
        given = [_plain(array) for array in inputs]
        kwargs = {name: tuple(map(_plain, value)) if name == "out" else value for name, value in kwargs.items()}
        return np.asarray(getattr(ufunc, method)(*given, **kwargs)).view(FakeArray)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        reached()
        return super().__array_function__(func, types, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        reached()
        super().__setitem__(key, value)

    def copy(self, order: Any = "C") -> Any:
        reached()
        return super().copy(order)


class NcclError(RuntimeError):
    pass


class Killed(BaseException):
    """The process of a rank has ended."""


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, FakeArray) else array


class World:
    """Where the ranks of one communicator meet: what each has put under a name."""

    def __init__(self, size: int) -> None:
        self.size, self.slots, self.changed = size, {}, threading.Condition()
        self.broken: str | None = None

    def put(self, key: Any, value: bytes) -> None:
        with self.changed:
            self.slots[key] = value
            self.changed.notify_all()

    def get(self, key: Any, stopped: Any) -> bytes | None:
        with self.changed:
            while key not in self.slots and not stopped():
                self.changed.wait(0.005)
            return self.slots.get(key)


class Operation(threading.Thread):
    """What a stream does for an operation, after what it was given before: bytes are read, sent and received."""

    def __init__(self, link: Any, sends: list[Any], receives: list[Any], before: "Operation | None") -> None:
        super().__init__(daemon=True)
        self._link, self._sends, self._receives, self._before = link, sends, receives, before
        self.ended_at = 0.0

    def run(self) -> None:
        if self._before is not None:
            self._before.join()
            self._before = None
        world = self._link.world
        for key, address, nbytes in self._sends:
            world.put(key, ctypes.string_at(address, nbytes))
        for key, address in self._receives:
            value = world.get(key, lambda: self._link.state != "open")
            if value is not None:
                ctypes.memmove(address, value, len(value))
        self.ended_at = time.perf_counter()


class Fake:
    """A module that looks like CuPy to one process whose threads have a GPU each.

    With `at_once`, an operation ends before the call that begins it: for other arrays than those of this module.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.at_once = at_once
        self.worlds: dict[bytes, World] = {}
        self.lock = threading.Lock()
        self.devices: dict[int, int] = {}
        self.here = _here
        _kept.clear()
        self.links: list[Any] = []
        self.refuses_to_join = False
        self.dies_while_connecting = self.dies_in_release = False
        self.dies_in: str | None = None
        """The operation in which the last rank dies without a word, once the ranks are connected; see `buried`."""
        self.buried = threading.Event()
        """The thread of a rank that has died ends when this is set, so that nobody is told before."""
        self.modules: dict[str, ModuleType] = {}
        """What to put into sys.modules."""

    def module(self) -> ModuleType:
        fake, cupy = self, ModuleType("cupy")
        counter = itertools.count(1)

        class Event:
            def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
                self._last: Any = None
                self._at = 0.0

            def record(self, stream: Any = None) -> None:
                self._last, self._at = getattr(fake.here, "last", None), time.perf_counter()

            @property
            def done(self) -> bool:
                return self._last is None or not self._last.is_alive()

            def synchronize(self) -> None:
                if self._last is not None:
                    self._last.join()

            @property
            def reached_at(self) -> float:
                return self._at if self._last is None else max(self._at, self._last.ended_at)

        class NcclCommunicator:
            def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
                if fake.refuses_to_join and rank == ndev - 1:
                    raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
                assert isinstance(commId, bytes)
                assert len(commId) == 128
                with fake.lock:
                    self.world = fake.worlds.setdefault(commId, World(ndev))
                    fake.links.append(self)
                self.rank, self.number, self.state, self.messages = rank, 0, "open", defaultdict(int)
                self.releasing = False
                self.world.put(("joined", rank), b"")
                begun = time.monotonic()
                for peer in range(ndev):
                    if self.world.get(("joined", peer), lambda: time.monotonic() > begun + 5) is None:
                        raise NcclError("a rank never came")

            def _meet(self, kind: str, peers: Any = None) -> None:
                """Wait in the call until the peers have made the first one of its kind, too."""
                self.world.put((kind, self.rank), b"")
                for peer in range(self.world.size) if peers is None else peers:
                    self.world.get((kind, peer), lambda: self.state == "aborted")
                if self.state == "aborted":
                    raise NcclError("the communicator was aborted")

            def allGather(  # noqa: N802
                self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int
            ) -> None:
                if fake.dies_while_connecting and self.rank == self.world.size - 1:
                    raise NcclError("the rank dies")
                self._meet("allGather")
                self._may_die("allGather")
                nbytes, number = count * BYTES[datatype], self._next()
                sends = [((number, self.rank), sendbuf, nbytes)]
                self._begin(sends, [((number, peer), recvbuf + peer * nbytes) for peer in range(self.world.size)])

            def broadcast(
                self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
            ) -> None:
                self._meet("broadcast")
                self._may_die("broadcast")
                number = self._next()
                sends = [((number, root), sendbuff, count * BYTES[datatype])] if self.rank == root else []
                self._begin(sends, [((number, root), recvbuff)])

            def _may_die(self, operation: str) -> None:
                if fake.dies_in == operation and self.rank == self.world.size - 1:
                    fake.buried.wait(60)
                    raise Killed

            def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
                self._may_die("send")
                assert fake.here.group is not None
                self.messages["to", peer] += 1
                key = (self.rank, peer, self.messages["to", peer])
                fake.here.group.append((self, (key, sendbuf, count * BYTES[datatype]), None))

            def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
                self.messages["from", peer] += 1
                key = (peer, self.rank, self.messages["from", peer])
                fake.here.group.append((self, None, (key, recvbuf)))

            def check_async_error(self) -> None:
                if self.world.broken:
                    raise NcclError(self.world.broken)

            def abort(self) -> None:
                assert self.state == "open"
                assert not self.releasing, "what an abort does during a release is not documented"
                self.state = "aborted"
                with self.world.changed:
                    self.world.changed.notify_all()

            def destroy(self) -> None:
                assert self.state == "open"
                self.releasing = True
                if fake.dies_in_release and self.rank == self.world.size - 1:
                    raise NcclError("the rank dies")
                self._meet("destroy")
                self.state = "destroyed"

            def _next(self) -> int:
                self.number += 1
                return self.number

            def _begin(self, sends: list[Any], receives: list[Any]) -> None:
                before = getattr(fake.here, "last", None)
                fake.here.last = Operation(self, sends, receives, before)
                fake.here.last.start()
                if fake.at_once:
                    fake.here.last.join()

        def group_start() -> None:
            fake.here.group = []

        def group_end() -> None:
            for link, group in itertools.groupby(fake.here.group, key=lambda item: item[0]):
                items = list(group)
                link._meet("sends")
                link._begin([one for _, one, _ in items if one], [one for _, _, one in items if one])
            fake.here.group = None

        nccl = ModuleType("cupy.cuda.nccl")
        nccl.__dict__.update(
            available=True, NcclError=NcclError, NcclCommunicator=NcclCommunicator,
            NCCL_FLOAT32=7, NCCL_FLOAT64=8, NCCL_INT64=4,
            get_unique_id=lambda: next(counter).to_bytes(128, "little"), get_version=lambda: 23203,
            groupStart=group_start, groupEnd=group_end,
        )  # fmt: skip
        runtime = SimpleNamespace(
            getDevice=lambda: getattr(fake.here, "device", 0),
            setDevice=lambda number: setattr(fake.here, "device", number),
            # As CuPy has it: cut at the first zero byte.
            getDeviceProperties=lambda number: {"uuid": int(number << 64).to_bytes(16, "little").split(b"\0")[0]},
            deviceGetPCIBusId=lambda number: f"0000:{number + 1:02X}:00.0",
        )
        stream = SimpleNamespace(ptr=17, synchronize=reached)
        cuda = ModuleType("cupy.cuda")  # without nccl, which must be imported
        cuda.__dict__.update(
            runtime=runtime, Event=Event, get_current_stream=lambda device_id=-1: stream,
            get_elapsed_time=lambda first, last: (last.reached_at - first.reached_at) * 1e3,
        )  # fmt: skip
        cupy.cuda, self.modules = cuda, {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": nccl}
        self.nccl = nccl
        cupy.ndarray = FakeArray
        cupy.asarray = lambda x: np.array(x).view(FakeArray)
        cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(FakeArray)
        cupy.concatenate = lambda parts: np.concatenate(parts).view(FakeArray)
        cupy.empty = lambda shape, dtype: np.full(shape, 111, dtype).view(FakeArray)
        cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(FakeArray)
        return cupy

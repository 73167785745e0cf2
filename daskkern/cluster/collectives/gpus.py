"""The choice between NCCL and the host for the collectives of GPU arrays, and the set-up of NCCL."""

import hashlib
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from distributed.diagnostics import nvml

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.cluster.collectives.nccl import GATHER_BYTES, NcclCommunicator, nccl_module, quietly


@contextmanager
def gpu_collectives(
    host: Communicator, xp: ModuleType, gather_bytes: int = GATHER_BYTES
) -> Iterator[tuple[Communicator, str]]:
    """Yield the communicator for arrays of `xp`, and a line that describes it; "" where there is no choice.

    It is an NCCL communicator where every rank has NCCL and a GPU of its own, else `host` itself: arrays then go
    through host memory. A collective of `host`, which stays open. `gather_bytes` is that of
    :class:`daskkern.cluster.collectives.nccl.NcclCommunicator`.

    Raises
    ------
    CommunicatorClosedError
        When a peer is lost meanwhile.
    """
    reason = None if host.size == 1 else _why_no_nccl(host, xp)
    if reason is None:
        yield host, ""
        return
    communicator = None if reason else _join(host, xp, gather_bytes)
    if communicator is None:
        yield host, f"collectives are staged through host memory: {reason or 'NCCL could not be started on all ranks'}"
        return
    try:
        yield communicator, f"collectives run over NCCL {nccl_module().get_version()}"
    except BaseException as error:
        communicator.abort_nccl()  # the peers may not come
        failure = communicator.failure
        if failure is not None and error is not failure and isinstance(error, Exception):
            raise failure from error  # of what was computed from arrays that had not arrived
        raise
    communicator.close()


_ON_CPU, _WITHOUT, _READY = 0, 1, 2
_CONNECTING = (8, 1 << 18)
"""Numbers of a rank in the operations that connect ranks: NCCL takes other algorithms for short and for long ones."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _why_no_nccl(host: Communicator, xp: ModuleType) -> str | None:
    """Return why the ranks cannot use NCCL, "" when they can, None when none has a GPU. A collective; one answer."""
    ranks = np.concatenate(host.allgather(_identity(xp)))
    kinds, devices = ranks[:, 0], ranks[:, 1:]
    if (kinds == _ON_CPU).all():
        return None
    for kind, what in (
        (_ON_CPU, "computes on the CPU"),
        (_WITHOUT, "has no NCCL; install nvidia-nccl-cu12 or nvidia-nccl-cu13 there"),
    ):
        if (kinds == kind).any():
            return f"rank {int(np.argmax(kinds == kind))} {what}"
    for rank in range(1, host.size):
        twins = np.flatnonzero((devices[:rank] == devices[rank]).all(axis=1))
        if twins.size:
            return f"ranks {twins[0]} and {rank} share a GPU, which NCCL does not allow"
    return ""


def _identity(xp: ModuleType) -> HostArray:
    """Return whether this rank can use NCCL, and a hash of its GPU's place, (1, 3).

    The place is the machine and the PCI bus id, as NCCL itself tells GPUs apart. CuPy cuts the UUID of a device at its
    first zero byte, which about one in 16 has.
    """
    identity = np.zeros((1, 3), np.int64)
    if xp is np:
        return identity
    identity[0, 0] = _READY if nccl_module().available else _WITHOUT
    place = f"{_machine()} {xp.cuda.runtime.deviceGetPCIBusId(xp.cuda.runtime.getDevice())}"
    identity[0, 1:] = np.frombuffer(hashlib.sha256(place.encode()).digest()[:16], np.int64)
    return identity


def _machine() -> str:
    """Return an identifier of this machine, the same in all its containers: a number of its kernel."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # another system than Linux
        return socket.gethostname()


def _join(host: Communicator, xp: ModuleType, gather_bytes: int) -> NcclCommunicator | None:
    """Form the NCCL communicator of all ranks; None on all of them if any rank failed. A collective."""
    nccl = nccl_module()
    words = np.zeros(16, np.int64)
    if host.rank == 0:
        words = np.frombuffer(nccl.get_unique_id(), np.int64)
    name = host.broadcast(words, 0).tobytes()
    device, made, connected = xp.cuda.runtime.getDevice(), [], []

    def join() -> None:
        xp.cuda.runtime.setDevice(device)  # of this thread
        made.append(nccl.NcclCommunicator(host.size, name, host.rank))
        _connect(made[0], xp, host.size)
        connected.append(True)

    # NCCL waits for all ranks without a deadline: hence a thread, which is abandoned when a rank never arrives.
    thread = threading.Thread(target=quietly, args=(join,), name="daskkern-nccl", daemon=True)
    thread.start()
    deadline = time.monotonic() + host.timeout_s / 2
    while thread.is_alive() and time.monotonic() < deadline:
        host.check()
        thread.join(0.01)
    everyone = np.concatenate(host.allgather(np.array([len(connected)], np.int64)))
    if everyone.all():
        return NcclCommunicator(host, xp, made[0], gather_bytes)
    for link in made:
        link.abort()
    return None


def _connect(link: Any, xp: ModuleType, size: int) -> None:
    """Run every operation that communicators use once, with few numbers and with many, and wait for its end.

    NCCL connects ranks in the first call of an operation, and again for another of its algorithms, which it chooses by
    size. That call blocks until all ranks have made it, whatever became of them.
    """
    nccl, stream = nccl_module(), xp.cuda.get_current_stream()
    for count in _CONNECTING:
        mine, all_of_them = xp.zeros(count, np.float32), xp.zeros((size, count), np.float32)
        step = count * mine.dtype.itemsize
        link.allGather(mine.data.ptr, all_of_them.data.ptr, count, nccl.NCCL_FLOAT32, stream.ptr)
        link.broadcast(mine.data.ptr, all_of_them.data.ptr, count, nccl.NCCL_FLOAT32, 0, stream.ptr)
        nccl.groupStart()
        for peer in range(size):
            link.send(mine.data.ptr, count, nccl.NCCL_FLOAT32, peer, stream.ptr)
            link.recv(all_of_them.data.ptr + peer * step, count, nccl.NCCL_FLOAT32, peer, stream.ptr)
        nccl.groupEnd()
        stream.synchronize()


def device_name(xp: ModuleType) -> str:
    """Return the name of the current GPU."""
    name = xp.cuda.runtime.getDeviceProperties(xp.cuda.runtime.getDevice())["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def gpu_use() -> float:
    """Return the recent utilization of this process's first GPU, in [0, 1]; NaN where it is not measured."""
    try:
        return float(nvml.real_time()["utilization"]) / 100 if nvml.device_get_count() else math.nan
    except Exception:  # pynvml raises types of its own, and a MIG device has no utilization
        return math.nan

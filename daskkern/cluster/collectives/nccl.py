"""Collectives between GPUs over NCCL, through CuPy.

Not run on a GPU so far: tested against a stand-in for the calls used, whose signatures are CuPy 14's.

NCCL has no deadlines: an operation whose peer is gone never ends. The rank gives each operation to its stream and goes
on; what the stream is given later follows it. Another thread (:mod:`daskkern.cluster.collectives.watchdog`) meanwhile
asks for an error that NCCL reports, an abort of the gang, and the deadline, which counts from when the stream comes to
the operation. In these cases it aborts the NCCL communicator, which frees the stream. What the rank reads from the GPU
after that is invalid: so each later collective, on the GPU or the host, raises what has happened, and nothing
that was read goes to another rank. Two calls of NCCL wait in themselves, where an abort has no stated effect: the first
one of a kind, which connects the ranks, and the release of a communicator. Both are made in a thread, which is
abandoned at the deadline (:mod:`daskkern.cluster.collectives.gpus`, :meth:`NcclCommunicator.close`).

Sums are taken along the tree of :mod:`daskkern.backend.summation`, as everywhere: terms are gathered, or scattered in
segments, and added here. NCCL's own allreduce adds in an order that depends on the machine.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Channel, Communicator, check_lengths
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.summation import add_stacked
from daskkern.cluster.collectives.watchdog import InFlight, Watchdog
from daskkern.errors import CommunicatorClosedError

GATHER_BYTES = 8_000_000
"""Bytes of all ranks together up to which sums are gathered, unless a communicator is given another number."""


class NcclCommunicator(Communicator):
    """The communicator of one rank with a GPU of its own, called from the rank's own thread.

    CuPy arrays go over NCCL and host arrays over `host`, which also reports aborts.

    Parameters
    ----------
    host : Communicator
        The communicator of the same ranks.
    xp : module
        CuPy.
    link : cupy.cuda.nccl.NcclCommunicator
        Used are its allGather, broadcast, send, recv, check_async_error, abort and destroy.
    gather_bytes : int
        Up to this many bytes of all ranks together, every rank gathers all terms of a sum and adds them itself.
    """

    def __init__(self, host: Communicator, xp: ModuleType, link: Any, gather_bytes: int = GATHER_BYTES) -> None:
        self.rank, self.size, self.timeout_s, self.in_stream = host.rank, host.size, host.timeout_s, xp
        self._host, self._xp, self._link = host, xp, link
        self._sent, self._gather_bytes, self._closed = 0, gather_bytes, False
        self._ways: Counter[str] = Counter()
        self._releasing = threading.Lock()
        self._nccl = nccl = nccl_module()
        self._types = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64, "int64": nccl.NCCL_INT64}
        self._watchdog = Watchdog(self._check_operation, self.abort_nccl)

    @property
    def bytes_sent(self) -> int:
        return self._sent + self._host.bytes_sent

    @property
    def ways(self) -> Mapping[str, int]:
        return {**self._host.ways, **self._ways}

    def channel(self) -> Channel | None:
        return self._host.channel()

    @property
    def failure(self) -> BaseException | None:
        """Why an operation of the GPU was aborted; None if none was."""
        return self._watchdog.error

    def check(self) -> None:
        self._peers().check()

    def allreduce(self, array: Array) -> Array:
        if not self._is_mine(array):
            return self._peers().allreduce(array)
        if array.nbytes * self.size <= self._gather_bytes:
            self._ways["nccl"] += 1
            return add_stacked(self._gathered(array, "allreduce"))
        self._ways["nccl, segments"] += 1
        return self._sum_in_segments(array)

    def allgather(self, array: Array) -> Sequence[Array]:
        if not self._is_mine(array):
            return self._peers().allgather(array)
        lengths = [int(part[0]) for part in self._peers().allgather(np.array([len(array)], np.int64))]
        return self._parts(array, lengths)

    def allgather_of(self, array: Array, lengths: Sequence[int]) -> Sequence[Array]:
        if not self._is_mine(array):
            return self._peers().allgather_of(array, lengths)
        check_lengths([len(array)], lengths[self.rank : self.rank + 1])
        return self._parts(array, lengths)

    def gather_to(self, array: Array, holders: Sequence[int]) -> Sequence[Array] | None:
        """As for other ranks, over the host: its holders keep the arrays in host memory."""
        held = to_host(array)
        return self._peers().gather_to(held, holders)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        if not self._is_mine(array):
            return self._peers().broadcast(array, root)
        if not 0 <= root < self.size:
            raise ValueError(
                f"got root={root} of a broadcast; expected 0 to {self.size - 1}, one of the {self.size} ranks"
            )
        mine = self._xp.ascontiguousarray(array).reshape(array.shape)
        received = self._xp.empty(mine.shape, mine.dtype)
        self._sent += int(mine.nbytes) * (self.size - 1) * (self.rank == root)
        self._run(
            "broadcast",
            lambda stream: self._link.broadcast(
                mine.data.ptr, received.data.ptr, mine.size, self._types[mine.dtype.name], root, stream
            ),
        )
        return received

    def barrier(self) -> None:
        self._peers().barrier()

    def abort(self, reason: str) -> None:
        self._host.abort(reason)
        self.abort_nccl()

    def abort_nccl(self) -> None:
        """Abort the NCCL communicator; the peers notice the abort of the gang, or reach their deadline.

        Not a collective.
        """
        self._watchdog.stop()
        with self._releasing:  # the watchdog, or who aborts the gang, may come at the same time
            link, self._link = self._link, None
        if link is not None:
            link.abort()

    def close(self) -> None:
        """Release the NCCL communicator; a collective. `host` stays open: its owner closes it.

        It waits for the operations of this rank. NCCL waits for all ranks when it releases one, so the ranks tell each
        other first whether theirs still exists. Unless all do, it is aborted. A release that a peer leaves waiting is
        abandoned at the deadline.

        Raises
        ------
        CommunicatorClosedError
            When an operation of this rank has failed and no collective has raised its error.
        """
        if self._closed:
            return
        self._closed = True
        self._xp.cuda.get_current_stream().synchronize()  # the watchdog ends it where a peer is gone
        try:
            existing = np.concatenate(self._peers().allgather(np.array([self._link is not None])))
        except CommunicatorClosedError:
            existing = np.zeros(1, bool)
        self._watchdog.stop()
        if not existing.all():
            self.abort_nccl()
            if self.failure is not None:
                raise self.failure
            return
        link, self._link = self._link, None
        thread = threading.Thread(target=quietly, args=(link.destroy,), name="daskkern-nccl", daemon=True)
        thread.start()
        # A release that hangs is left alone: no operation is in flight, and NCCL does not say what an abort does then.
        thread.join(self.timeout_s)

    def _peers(self) -> Communicator:
        """Return the host's communicator, for what may depend on the GPU. Raises if an operation there has failed."""
        if self._watchdog.error is not None:
            raise self._watchdog.error
        return self._host

    def _is_mine(self, array: Array) -> bool:
        return namespace_of(array) is self._xp and array.dtype.name in self._types

    def _parts(self, array: Array, lengths: Sequence[int]) -> Sequence[Array]:
        """Return the arrays of all ranks; NCCL gathers equal lengths only, so that shorter ones are padded."""
        longest = max(lengths)
        if len(array) < longest:
            padded = self._xp.zeros((longest, *array.shape[1:]), array.dtype)
            padded[: len(array)] = array
            array = padded
        parts = self._gathered(array, "allgather")
        return [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def _gathered(self, array: Array, operation: str) -> Array:
        """Return the arrays of all ranks, (W, ...)."""
        mine = self._xp.ascontiguousarray(array).reshape(array.shape)
        parts = self._xp.empty((self.size, *mine.shape), mine.dtype)
        self._sent += int(mine.nbytes) * (self.size - 1)
        if mine.size:
            self._run(
                operation,
                lambda stream: self._link.allGather(
                    mine.data.ptr, parts.data.ptr, mine.size, self._types[mine.dtype.name], stream
                ),
            )
        return parts

    def _sum_in_segments(self, array: Array) -> Array:
        """Send each rank its segment of the array, which it adds, and gather the sums."""
        xp, nccl, size = self._xp, self._nccl, self.size
        length = -(-array.size // size)
        padded = xp.zeros((size, length), array.dtype)
        padded.reshape(-1)[: array.size] = array.reshape(-1)
        terms = xp.empty((size, length), array.dtype)
        kind, step = self._types[array.dtype.name], length * array.dtype.itemsize

        def exchange(stream: int) -> None:
            nccl.groupStart()
            for peer in range(size):
                self._link.send(padded.data.ptr + peer * step, length, kind, peer, stream)
                self._link.recv(terms.data.ptr + peer * step, length, kind, peer, stream)
            nccl.groupEnd()

        self._sent += int(padded.nbytes) // size * (size - 1)
        self._run("allreduce", exchange)
        total = self._gathered(add_stacked(terms), "allreduce")
        return total.reshape(-1)[: array.size].reshape(array.shape)

    def _run(self, operation: str, launch: Callable[[int], None]) -> None:
        """Give an operation to the current stream.

        Raises
        ------
        CommunicatorClosedError
            When NCCL refuses it, or an earlier one has failed: it missed its deadline, NCCL reported an error, or the
            gang was aborted.
        """
        self.check()
        if self._link is None:
            raise CommunicatorClosedError(f"{operation} was not started: NCCL was aborted before")
        cuda = self._xp.cuda
        stream, begun, ended = cuda.get_current_stream(), *(cuda.Event(disable_timing=True) for _ in range(2))
        late = CommunicatorClosedError(
            f"{operation} over NCCL was aborted by rank {self.rank}: it did not end in {self.timeout_s:g} s; see "
            "whether all workers are alive, or raise collective_timeout_s"
        )
        try:
            begun.record(stream)
            with self._watchdog.watching(self.timeout_s, late):
                launch(stream.ptr)
            ended.record(stream)
            self._watchdog.follow(InFlight(begun, ended, self.timeout_s, late))
        except BaseException as error:
            self.abort_nccl()
            if isinstance(error, self._nccl.NcclError):
                raise CommunicatorClosedError(f"{operation} over NCCL failed on rank {self.rank}: {error}") from error
            raise

    def _check_operation(self) -> None:
        """Raise when no operation can end any more: the gang is aborted, or NCCL has found an error."""
        self._host.check()
        link = self._link
        if link is None:
            return
        try:
            link.check_async_error()
        except self._nccl.NcclError as error:
            raise CommunicatorClosedError(f"NCCL failed on rank {self.rank}: {error}") from error


def quietly(work: Callable[[], None]) -> None:
    """Run `work` and swallow its exceptions; a missing result shows that it failed."""
    try:
        work()
    except Exception:  # of the driver, the network, or a peer that is gone
        return


def nccl_module() -> Any:
    """Return CuPy's module for NCCL, which is not an attribute of ``cupy.cuda`` until it is imported."""
    from cupy.cuda import nccl  # optional package

    return nccl

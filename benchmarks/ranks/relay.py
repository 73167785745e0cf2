"""A relay of TCP connections between hosts on the loopback interface, with a rate and a delay for each host's link.

A host is a loopback address ``127.NET.HOST.2``. What listens there is reached at ``127.NET.HOST.1`` and the same port,
where the relay listens, and who connects binds its own address, by which the relay knows the host that sends. A chunk
leaves through the sender's link, is delayed, and arrives through the receiver's link; either carries `rate` bytes per
second in each direction, whatever the number of connections. Chunks within a host, and from or to addresses that are
none, are passed on at once. Loss, congestion windows and switches are not emulated.
"""

import heapq
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

_CHUNK = 1 << 16
_WINDOW = 8 << 20
"""Bytes of one direction of a connection that may be on their way."""
_BURST_S = 5e-4
"""How much a link may catch up when the relay was late: the depth of its token bucket, in seconds of its rate."""

_PRIORITY = -10
"""Of the relay, where it may have it: the ranks that it serves use all cores, and it must wake up in time."""


@dataclass(frozen=True)
class LinkSettings:
    """The link of each host: bytes per second, infinite if 0, and seconds of delay from host to host."""

    rate: float = 0.0
    delay_s: float = 0.0


def listening(net: int, host: int) -> str:
    """Return the address at which processes of a host listen, and from which they connect."""
    return f"127.{net}.{host}.2"


def relayed(net: int, host: int) -> str:
    """Return the address of the relay at which others reach a host."""
    return f"127.{net}.{host}.1"


@contextmanager
def relay(net: int, ports: dict[int, list[int]]) -> Iterator["RelayControl"]:
    """Yield the control of a relay for the `ports` of each host, in a process of its own, which ends on exit."""
    context = get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(net, ports, there), daemon=True)
    process.start()
    try:
        if not here.poll(20.0) or here.recv() != "ready":
            raise RuntimeError("the relay did not start; another run may use its addresses")
        yield RelayControl(here)
    finally:
        with suppress(OSError):
            here.send(None)
        process.join(5.0)
        process.kill()


class RelayControl:
    """Changes the links of a running relay, and asks for what it has carried."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def set(self, links: LinkSettings) -> tuple[float, int]:
        """Set all links; return the processor seconds and the bytes between hosts of the relay so far."""
        self._pipe.send(links)
        answer: tuple[float, int] = self._pipe.recv()
        return answer


@dataclass(eq=False)
class _Stream:
    """One direction of a connection: chunks with the times at which they arrive."""

    source: socket.socket
    target: socket.socket
    hosts: tuple[int | None, int | None]
    chunks: deque[tuple[float, bytes]] = field(default_factory=deque)
    held: int = 0
    sent_of_first: int = 0
    paused: bool = False
    blocked: bool = False
    ended: bool = False
    closed: bool = False


class _Relay:
    def __init__(self, net: int, ports: dict[int, list[int]], pipe: Connection) -> None:
        self._events = select.epoll()
        self._net, self._pipe, self._links, self.carried = net, pipe, LinkSettings(), 0
        self._free: dict[tuple[int, str], float] = {}  # when a link has sent or received all that it was given
        self._due: list[tuple[float, int, _Stream]] = []
        self._count = 0
        self._reads: dict[int, _Stream] = {}
        self._writes: dict[int, _Stream] = {}
        self._listeners: dict[int, tuple[socket.socket, int, int]] = {}
        for host, each in ports.items():
            for port in each:
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((relayed(net, host), port))
                listener.listen(512)
                listener.setblocking(False)
                self._listeners[listener.fileno()] = (listener, host, port)
                self._events.register(listener.fileno(), select.EPOLLIN)
        self._events.register(pipe.fileno(), select.EPOLLIN)

    def run(self) -> None:
        while True:
            wait = None if not self._due else max(0.0, self._due[0][0] - time.perf_counter())
            # epoll counts milliseconds, and select microseconds
            if wait is None or wait > 0:
                select.select([self._events.fileno()], [], [], wait)
            self._deliver_due()
            for number, mask in self._events.poll(0):
                if number == self._pipe.fileno():
                    if not self._obey():
                        return
                elif number in self._listeners:
                    self._accept(*self._listeners[number])
                else:
                    self._serve_socket(number, mask)

    def _obey(self) -> bool:
        try:
            links = self._pipe.recv()
        except EOFError:
            return False
        if links is None:
            return False
        self._links = links
        self._free.clear()
        self._pipe.send((time.process_time(), self.carried))
        return True

    def _accept(self, listener: socket.socket, host: int, port: int) -> None:
        with suppress(BlockingIOError):
            while True:
                client, (address, _) = listener.accept()
                server = socket.socket()
                try:
                    server.connect((listening(self._net, host), port))
                except OSError:
                    client.close()
                    server.close()
                    continue
                origin = self._host_of(address)
                for end in (client, server):
                    end.setblocking(False)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._join(_Stream(client, server, (origin, host)))
                self._join(_Stream(server, client, (host, origin)))
                for end in (client, server):
                    self._events.register(end.fileno(), select.EPOLLIN)

    def _host_of(self, address: str) -> int | None:
        first, net, host, _ = map(int, address.split("."))
        return host if (first, net) == (127, self._net) else None

    def _join(self, stream: _Stream) -> None:
        self._reads[stream.source.fileno()] = stream
        self._writes[stream.target.fileno()] = stream

    def _serve_socket(self, number: int, mask: int) -> None:
        stream = self._writes.get(number)
        if stream is not None and mask & select.EPOLLOUT:
            self._flush(stream)
        stream = self._reads.get(number)
        if stream is not None and not stream.paused and mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read(stream)

    def _read(self, stream: _Stream) -> None:
        try:
            data = stream.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._drop(stream)
            return
        stream.ended = not data
        at = self._arrival(stream.hosts, len(data))
        stream.chunks.append((at, data))
        stream.held += len(data)
        if at <= time.perf_counter():
            self._flush(stream)
        else:
            self._count += 1
            heapq.heappush(self._due, (at, self._count, stream))
        stream.paused = stream.ended or stream.held > _WINDOW
        self._watch(stream.source)

    def _arrival(self, hosts: tuple[int | None, int | None], size: int) -> float:
        """Return when a chunk that was read now has arrived at the receiver."""
        now, (sender, receiver) = time.perf_counter(), hosts
        if sender is None or receiver is None or sender == receiver:
            return now
        self.carried += size
        if not self._links.rate:
            return now + self._links.delay_s
        taken, delay = size / self._links.rate, self._links.delay_s
        sent = max(now - _BURST_S, self._free.get((sender, "out"), 0.0)) + taken
        self._free[sender, "out"] = sent
        left = max(now, sent)
        received = max(left - taken + delay - _BURST_S, self._free.get((receiver, "in"), 0.0)) + taken
        self._free[receiver, "in"] = received
        return max(left + delay, received)

    def _deliver_due(self) -> None:
        now = time.perf_counter()
        while self._due and self._due[0][0] <= now:
            _, _, stream = heapq.heappop(self._due)
            if not stream.closed:
                self._flush(stream)

    def _flush(self, stream: _Stream) -> None:
        """Send the chunks that have arrived."""
        now = time.perf_counter()
        try:
            while stream.chunks and stream.chunks[0][0] <= now:
                data = stream.chunks[0][1]
                if not data:
                    stream.chunks.clear()
                    stream.blocked = False
                    self._watch(stream.target)
                    stream.target.shutdown(socket.SHUT_WR)
                    self._end(stream)
                    return
                sent = stream.target.send(memoryview(data)[stream.sent_of_first :])
                stream.held -= sent
                stream.sent_of_first += sent
                if stream.sent_of_first == len(data):
                    stream.chunks.popleft()
                    stream.sent_of_first = 0
            stream.blocked = False
        except BlockingIOError:
            stream.blocked = True
        except OSError:
            self._drop(stream)
            return
        stream.paused = stream.ended or stream.held > _WINDOW
        self._watch(stream.source)
        self._watch(stream.target)

    def _watch(self, end: socket.socket) -> None:
        number = end.fileno()
        if number < 0:
            return
        reads, writes = self._reads.get(number), self._writes.get(number)
        mask = select.EPOLLIN if reads is not None and not reads.paused else 0
        mask |= select.EPOLLOUT if writes is not None and writes.blocked else 0
        self._events.modify(number, mask)

    def _end(self, stream: _Stream) -> None:
        """One direction is over; when both are, close the connection."""
        stream.closed = True
        back = self._reads.get(stream.target.fileno())
        if back is None or back.closed:
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        for end in (stream.source, stream.target):
            for table in (self._reads, self._writes):
                found = table.pop(end.fileno(), None)
                if found is not None:
                    found.closed = True
            if end.fileno() >= 0:
                with suppress(OSError):
                    self._events.unregister(end.fileno())
                end.close()


def _serve(net: int, ports: dict[int, list[int]], pipe: Any) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    try:
        serving = _Relay(net, ports, pipe)
    except OSError as error:
        pipe.send(str(error))
        return
    pipe.send("ready")
    with suppress(KeyboardInterrupt):
        serving.run()

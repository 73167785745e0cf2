"""Validation of the relay with plain sockets: the round trip and the rate of a link, measured and requested."""

import socket
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

from ranks.relay import LinkSettings, RelayControl, listening, relay, relayed

_PORT = 9400
_PING = b"x" * 100


def measured_links(net: int, links: Sequence[LinkSettings], seconds: float) -> list[dict[str, Any]]:
    """Return a row for a connection without the relay, and one for each of `links`, each measured for `seconds`."""
    with relay(net, {2: [_PORT]}) as control, socket.create_server((listening(net, 2), _PORT)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        rows = [_row(net, None, control, seconds)]
        rows += [_row(net, each, control, seconds) for each in links]
    return rows


def _row(net: int, links: LinkSettings | None, control: RelayControl, seconds: float) -> dict[str, Any]:
    control.set(links or LinkSettings())
    address = relayed(net, 2) if links is not None else listening(net, 2)
    with socket.create_connection((address, _PORT), source_address=(listening(net, 1), 0)) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        deadline = time.perf_counter() + seconds / 2
        while len(trips) < 10 or time.perf_counter() < deadline:
            begun = time.perf_counter()
            end.sendall(_PING)
            _receive(end, len(_PING))
            trips.append(time.perf_counter() - begun)
        size, piece = 0, bytes(1 << 18)
        end.sendall(b"s" + bytes(99))  # from here on the other end only counts
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds / 2:
            end.sendall(piece)
            size += len(piece)
        end.shutdown(socket.SHUT_WR)
        counted = int.from_bytes(_receive(end, 8), "big")
        taken = time.perf_counter() - begun
    if counted != size:
        raise RuntimeError(f"{size} bytes were sent, but {counted} arrived")
    return {
        "link": "direct" if links is None else "relay",
        "asked_rate_gbit": None if links is None or not links.rate else round(8e-9 * links.rate, 3),
        "asked_delay_ms": None if links is None else 1e3 * links.delay_s,
        "round_trip_ms": round(1e3 * statistics.median(trips), 3),
        "rate_gbit": round(8e-9 * size / taken, 3),
    }


def _serve(server: socket.socket) -> None:
    while True:
        try:
            end, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(end,), daemon=True).start()


def _answer(end: socket.socket) -> None:
    with end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (data := _receive(end, len(_PING))) and data[:1] == b"x":
            end.sendall(data)
        if not data:
            return
        size = 0
        while piece := end.recv(1 << 18):
            size += len(piece)
        end.sendall(size.to_bytes(8, "big"))


def _receive(end: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := end.recv(size - len(found))):
        found += piece
    return found

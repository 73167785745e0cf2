"""A sum of two ranks on one machine: over Dask's connections, over sockets of its own, and through shared memory.

    python -m benchmarks wires --out benchmarks/results-wires.json

What does a protocol of its own gain? Two processes take the sum of their arrays again and again. With Dask it is the
allreduce of a fit between hosts, by `direct`; "a fit on one host" is the allreduce that ranks of one host use. With
sockets each sends a header of 16 bytes and its array from the thread that needs the sum, without an event loop. Through
shared memory each copies its array where the other reads it, and looks at a counter until the other has done so, first
without a pause and then every 50 us. Neither of the two knows encryption, deadlines, lost peers or generations, so that
they are bounds of what can be gained. The four are measured in turns. A time is the mean of the sums of a turn, which
follow each other without a pause: a rank that comes late finds the other's array there, so that single sums take long
and short in turn.

Four ranks on two hosts, which are addresses of the loopback interface, take their sums by messages alone, and in the
memory of each host with messages between the hosts.
"""

import argparse
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
from collectives import PATIENT, measure
from figures import Run, add, today
from products.machine import OthersLoad, describe_machine, versions

from daskkern.cluster.collectives.sum_costs import cost_of_sum
from daskkern.cluster.gang.gang import run_gang
from tests.support.cluster import by_messages, local_cluster, mixed_cluster

SIZES = {"8 KB": 8_000, "80 KB": 80_000, "1 MB": 1_000_000}
STEPS_MS = {"p = 1,000,000, d = 784, 256 ranks": (256, 440.0), "p = 2,000, d = 784, 16 ranks": (16, 24.0)}
"""Ranks and milliseconds of steps of docs/scaling.md, of which a sum's share is stated."""
BUILT = "a fit on one host"
HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
_HEADER = struct.Struct("<qq")
_SPINS = 2000

Sum = Callable[[np.ndarray], np.ndarray]


def over_sockets(end: socket.socket) -> Sum:
    """Return the sum of two processes over a connection; the sending does not wait for the other's array."""

    def total(array: np.ndarray) -> np.ndarray:
        data = memoryview(array).cast("B")
        sender = None
        if data.nbytes > 1 << 16:  # more than the buffers of a connection take
            sender = threading.Thread(target=end.sendall, args=(_HEADER.pack(0, data.nbytes) + data.tobytes(),))
            sender.start()
        else:
            end.sendall(_HEADER.pack(0, data.nbytes) + data.tobytes())
        _, nbytes = _HEADER.unpack(_received(end, _HEADER.size))
        other = np.frombuffer(_received(end, nbytes), array.dtype)
        if sender is not None:
            sender.join()
        return array + other

    return total


def through_memory(memory: SharedMemory, rank: int) -> Sum:
    """Return the sum of two processes through shared memory: two arrays for each, used in turn, and two counters."""
    assert memory.buf is not None
    counters, most = np.frombuffer(memory.buf, np.int64, 2), (memory.size - 16) // 4
    done = 0

    def place(of: int, array: np.ndarray) -> np.ndarray:
        return np.frombuffer(memory.buf, array.dtype, array.size, 16 + most * (2 * of + done % 2))

    def total(array: np.ndarray) -> np.ndarray:
        nonlocal done
        done += 1
        place(rank, array)[:] = array
        counters[rank] = done
        spins = 0
        while counters[1 - rank] < done:
            spins += 1
            if spins > _SPINS:
                time.sleep(5e-5)
        return array + place(1 - rank, array)

    return total


def _received(end: socket.socket, nbytes: int) -> bytearray:
    found = bytearray(nbytes)
    view, at = memoryview(found), 0
    while at < nbytes:
        at += end.recv_into(view[at:])
    return found


def seconds_of(total: Sum, nbytes: int, repeats: int) -> list[float]:
    """Return the seconds of each sum, after a few."""
    array = np.ones(nbytes // 4, np.float32)
    for _ in range(3):
        total(array)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = total(array)
        seconds.append(time.perf_counter() - begun)
        if found[-1] != 2.0:
            raise RuntimeError(f"got {found[-1]} as the sum of two ones")
    return seconds


def _peer(port: int, name: str, orders: Sequence[tuple[int, int]]) -> None:
    """Be the second rank of all sums."""
    with socket.create_connection(("127.0.0.1", port)) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for nbytes, repeats in orders:
            seconds_of(over_sockets(end), nbytes, repeats)
    memory = SharedMemory(name)
    total = through_memory(memory, 1)
    for nbytes, repeats in orders:
        seconds_of(total, nbytes, repeats)
    del total  # and its arrays, before the memory is closed
    memory.close()


def of_their_own(repeats: int) -> dict[tuple[str, str], list[float]]:
    """Return the seconds of the sums over sockets and through memory, by way and size."""
    orders = [(nbytes, repeats) for nbytes in SIZES.values()]
    found: dict[tuple[str, str], list[float]] = {}
    memory = SharedMemory(create=True, size=16 + 4 * max(SIZES.values()))
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = get_context("spawn").Process(target=_peer, args=(server.getsockname()[1], memory.name, orders))
        process.start()
        with server.accept()[0] as end:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size, nbytes in SIZES.items():
                found["sockets", size] = seconds_of(over_sockets(end), nbytes, repeats)
        total = through_memory(memory, 0)
        for size, nbytes in SIZES.items():
            found["shared memory", size] = seconds_of(total, nbytes, repeats)
        process.join(60)
    del total
    memory.close()
    memory.unlink()
    return found


def on_two_hosts(repeats: int, turns: int) -> dict[tuple[str, str], list[float]]:
    """Return the mean seconds of a sum in each turn, by wire and size, of four ranks on two hosts."""
    means: dict[tuple[str, str], list[float]] = {}
    with mixed_cluster([(1, 0)] * len(HOSTS), HOSTS) as client:
        for _ in range(turns):
            for size, nbytes in SIZES.items():
                for wire, alone in (("messages", True), ("memory and messages", False)):
                    with by_messages(client) if alone else nullcontext():
                        seconds = run_gang(client, measure, (None, nbytes, repeats), name="sums", settings=PATIENT)[0]
                    means.setdefault((wire, size), []).append(float(np.mean(seconds)))
    return means


def _rows(means: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "wire": wire,
            "size": size,
            "n_turns": len(found),
            "least_ms": round(1e3 * min(found), 4),
            "median_ms": round(1e3 * float(np.median(found)), 4),
        }
        for (wire, size), found in means.items()
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--repeats", type=int, default=200, help="sums of each size, in each of five turns")
    parser.add_argument("--tiny", action="store_true", help="three sums, to check that it runs")
    options = parser.parse_args(argv)
    repeats, turns = (3, 1) if options.tiny else (options.repeats, 5)
    means: dict[tuple[str, str], list[float]] = {}
    load = OthersLoad()
    with local_cluster(2) as client:
        for _ in range(turns):
            for size, nbytes in SIZES.items():
                for wire, way in (("Dask", "direct"), (BUILT, None)):
                    seconds = run_gang(client, measure, (way, nbytes, repeats), name="sums", settings=PATIENT)[0]
                    means.setdefault((wire, size), []).append(float(np.mean(seconds)))
            for key, seconds in of_their_own(repeats).items():
                means.setdefault(key, []).append(float(np.mean(seconds)))
    rows, on_hosts = _rows(means), _rows(on_two_hosts(repeats, turns))
    gains = [gain(rows, step, size) for step in STEPS_MS for size in ("8 KB", "80 KB")]
    tables = {"sums": rows, "hosts": on_hosts, "gains": gains, "whole": [{"others_load_cores": round(load.cores(), 2)}]}
    print(*rows, *on_hosts, *gains, sep="\n")
    add(Run("wires", today(), describe_machine(), versions(), {"n_repeats": repeats}, tables), options.out)


def gain(rows: Sequence[dict[str, Any]], step: str, size: str) -> dict[str, Any]:
    """Return the share of a step that its two sums would save if each crossing took what it takes by another wire.

    The step is that of the page, with sums whose crossings take what was measured.
    """
    n_ranks, step_ms = STEPS_MS[step]
    known = {row["wire"]: row["least_ms"] for row in rows if row["size"] == size}
    cost = cost_of_sum("doubling", n_ranks, SIZES[size])
    crossings = cost.crossings
    whole = step_ms + 2 * (crossings * known["Dask"] - 1e3 * cost.seconds(1, n_ranks))
    wires = ("sockets", "shared memory", BUILT)
    saved = {wire: 2 * crossings * (known["Dask"] - known[wire]) / whole for wire in wires}
    return {
        "step": step,
        "size": size,
        "n_crossings": crossings,
        "sockets_save_share": round(saved["sockets"], 4),
        "shared_memory_saves_share": round(saved["shared memory"], 4),
        "fits_save_share": round(saved[BUILT], 4),
    }


if __name__ == "__main__":
    main()

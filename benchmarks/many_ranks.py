"""Sums and gathers of many ranks: messages and bytes against the formulas, time against a model, and what it says.

    python -m benchmarks many_ranks --out benchmarks/results-many-ranks.json
    python -m benchmarks many_ranks --links 1000 --workers 4 8 16

The workers are processes of this machine and share its cores; with ``--links`` each is on a host of its own, a network
namespace whose link carries that many megabits per second (as root on Linux). The time of a message is fitted to the
measured times, with all messages of all ranks on these cores. From it follow the times of 64 to 1,000 ranks that have a
core each, and the share of a step that its sums take.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from collectives import PATIENT, cluster
from figures import Run, add, today
from products.machine import OthersLoad, cpu_count, describe_machine, versions
from scipy.optimize import nnls

from daskkern.cluster.collectives.allreduce import Way
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.sum_costs import cost_of_sum, way_of_sum
from daskkern.cluster.gang.gang import run_gang
from daskkern.cluster.gang.rank_context import RankContext

SIZES = {"8 KB": 8_000, "200 KB": 200_000, "4 MB": 4_000_000}
RANKS = (64, 128, 256, 512, 1000)
WAYS: tuple[Way, ...] = ("star", "doubling", "segments", "halving")
STEP = {"p": 1_000_000, "m": 5_000, "d": 784, "c": 10, "n_sums": 3, "gflops": 100.0}
"""The step of which the share of sums is computed: its sizes, number of sums, and the rate of a rank."""


def measure(comm: DaskCommunicator, order: tuple[Way, int, int], context: RankContext) -> dict[str, float]:
    """Return the median seconds of an allreduce, and what this rank sends for one."""
    comm.way, nbytes, repeats = order
    array = np.ones(nbytes // 4, np.float32)
    comm.allreduce(array)
    comm.barrier()
    sent, messages, seconds = comm.bytes_sent, comm.messages_sent, []
    for _ in range(repeats):
        begun = time.perf_counter()
        comm.allreduce(array)
        seconds.append(time.perf_counter() - begun)
    return {
        "seconds": float(np.median(seconds)),
        "messages": (comm.messages_sent - messages) / repeats,
        "bytes": (comm.bytes_sent - sent) / repeats,
    }


def record(n_workers: int, way: Way, size: str, ranks: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return a row of the table of sums: what was measured, and what the formulas say of the busiest rank."""
    cost = cost_of_sum(way, n_workers, SIZES[size])
    return {
        "n_workers": n_workers,
        "way": way,
        "size": size,
        "median_ms": round(1e3 * ranks[0]["seconds"], 3),
        "n_sent_most": max(rank["messages"] for rank in ranks),
        "n_sent_and_received_by_formula": cost.messages,
        "n_sent_by_all": sum(rank["messages"] for rank in ranks),
        "sent_most_mb": round(1e-6 * max(rank["bytes"] for rank in ranks), 4),
        "by_formula_mb": round(1e-6 * cost.n_bytes, 4),
        "sent_by_all_mb": round(1e-6 * sum(rank["bytes"] for rank in ranks), 4),
        "n_crossings": cost.crossings,
    }


def constants(records: Sequence[dict[str, Any]], cores: int) -> dict[str, float]:
    """Fit latency, time per message and bytes per second to the measured times, which share `cores` cores.

    t = crossings * latency + messages of all ranks * message / cores + bytes of all ranks / rate / cores
    """
    A = np.array([[r["n_crossings"], r["n_sent_by_all"] / cores, 1e6 * r["sent_by_all_mb"] / cores] for r in records])
    t = np.array([1e-3 * r["median_ms"] for r in records])
    latency, message, byte = nnls(A / t[:, None], np.ones(len(t)))[0]  # relative errors count
    spread = np.abs(A @ [latency, message, byte] / t - 1)
    return {
        "latency_ms": round(1e3 * float(latency), 4),
        "message_ms": round(1e3 * float(message), 4),
        "rate_mb": round(1e-6 / float(byte), 1) if byte else 0.0,
        "median_error": round(float(np.median(spread)), 3),
    }


def expected(found: dict[str, float]) -> list[dict[str, Any]]:
    """Return the times of sums of many ranks with a core each, and the share that they take of a step."""
    rate = 1e6 * found["rate_mb"] or np.inf
    flops = 2.0 * STEP["p"] * STEP["m"] * (STEP["d"] + STEP["c"])
    nbytes = int(4 * STEP["m"] * STEP["c"])
    rows = []
    for n in RANKS:
        way = way_of_sum(n, nbytes, n, n)
        cost, star = cost_of_sum(way, n, nbytes), cost_of_sum("star", n, nbytes)

        def seconds(c: Any) -> float:
            half = 0.5e-3 * found["message_ms"]  # one end of a message
            return float(1e-3 * found["latency_ms"] * c.crossings + half * c.messages + c.n_bytes / rate)

        computing = flops / (1e9 * STEP["gflops"] * n)
        rows.append(
            {
                "n_ranks": n,
                "way": way,
                "sum_ms": round(1e3 * seconds(cost), 2),
                "sum_by_star_ms": round(1e3 * seconds(star), 2),
                "computing_ms": round(1e3 * computing, 1),
                "computing_share": round(computing / (computing + STEP["n_sums"] * seconds(cost)), 3),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--links", type=int, metavar="MBIT", help="one host per worker, with links of this rate")
    parser.add_argument("--tiny", action="store_true", help="three workers and two repeats, to check that it runs")
    options = parser.parse_args(argv)
    workers, repeats = ([3], 2) if options.tiny else (options.workers, 30)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that hosts are removed
    records, load = [], OthersLoad()
    for n_workers in workers:
        with cluster(n_workers, options.links) as client:
            for size, nbytes in SIZES.items():
                for way in WAYS:
                    ranks = run_gang(client, measure, (way, nbytes, repeats), name="sums", settings=PATIENT)
                    records.append(record(n_workers, way, size, ranks))
                    print(records[-1], flush=True)
    found = constants(records, cpu_count())
    tables = {
        "sums": records,
        "constants": [found],
        "expected": expected(found),
        "whole": [{"others_load_cores": round(load.cores(), 2)}],
    }
    print(found, *tables["expected"], sep="\n")
    if options.out is not None:
        settings = {"links_megabits": options.links, "n_repeats": repeats, **STEP}
        add(Run("many_ranks", today(), describe_machine(), versions(), settings, tables), options.out)


if __name__ == "__main__":
    main()

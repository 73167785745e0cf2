"""Time of an allreduce, by number of ranks, size of the array and algorithm.

    python -m benchmarks collectives --out benchmarks/results-collectives.json
    python -m benchmarks collectives --links 200 --out benchmarks/results-collectives-links.json

Workers run on the loopback interface; with ``--links`` each on a host of its own, a network namespace whose link
carries that many megabits per second (as root on Linux). Allreduces follow each other without a pause; times are those
of rank 0.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from figures import Run, add, today
from products.machine import OthersLoad, cpu_count, describe_machine, versions

from daskkern.cluster.collectives.allreduce import Way
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.sum_costs import way_of_sum
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.rank_context import RankContext
from tests.support.cluster import local_cluster
from tests.support.network import dask_commands, network

SIZES = {"80 KB": 80_000, "1 MB": 1_000_000, "8 MB": 8_000_000}
REPEATS = {"80 KB": 300, "1 MB": 100, "8 MB": 30}
_MANY: list[Way] = ["star", "doubling", "reduce_scatter", "halving"]
WAYS: dict[int, list[Way]] = {2: ["direct", "star"], 4: _MANY, 8: _MANY}
PATIENT = GangSettings(collective_timeout_s=300.0, silence_s=120.0)


def measure(comm: DaskCommunicator, order: tuple[Way | None, int, int], context: RankContext) -> list[float]:
    """Return the seconds of each allreduce, after a few warm-up calls."""
    comm.way, nbytes, repeats = order
    array = np.ones(nbytes // 4, np.float32)
    for _ in range(3):
        comm.allreduce(array)
    comm.barrier()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        comm.allreduce(array)
        seconds.append(time.perf_counter() - begun)
    return seconds


@contextmanager
def cluster(workers: int, megabits: int | None) -> Iterator[Client]:
    """Yield a client of that many workers."""
    if megabits is None:
        with local_cluster(workers) as client:
            yield client
        return
    with network(workers + 1) as hosts:
        for host in hosts.hosts:
            host.limit(megabits)
        address = dask_commands(hosts.hosts[0], hosts.hosts[1:])
        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=120)
            yield client


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as a table for docs."""
    lines = ["| workers | way | " + " | ".join(f"{size}: median / p95, ms" for size in SIZES) + " |"]
    lines.append("|---" * (2 + len(SIZES)) + "|")
    for workers in dict.fromkeys(record["n_workers"] for record in records):
        mine = [record for record in records if record["n_workers"] == workers]
        for way in dict.fromkeys(record["way"] for record in mine):
            cells = []
            for size in SIZES:
                found = next(record for record in mine if record["way"] == way and record["size"] == size)
                text = f"{found['median_ms']:.3g} / {found['p95_ms']:.3g}"
                cells.append(f"**{text}**" if found["chosen"] else text)
            lines.append(f"| {workers} | {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--links", type=int, metavar="MBIT", help="one host per worker, with links of this rate")
    parser.add_argument("--share", type=float, default=1.0, help="share of the repeats to run, for a quick look")
    parser.add_argument("--tiny", action="store_true", help="two workers and three repeats, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.workers, options.share = [2], 0.0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that hosts are removed
    records, load = [], OthersLoad()
    for workers in options.workers:
        with cluster(workers, options.links) as client:
            for size, nbytes in SIZES.items():
                repeats = max(3, round(REPEATS[size] * options.share))
                taken: dict[Way, list[float]] = {way: [] for way in WAYS[workers]}
                for _ in range(3):  # in turns, so that drifts of the machine affect all alike
                    for way, seconds in taken.items():
                        order = (way, nbytes, max(1, repeats // 3))
                        seconds += run_gang(client, measure, order, name="sums", settings=PATIENT)[0]
                hosts = 1 if options.links is None else workers
                chosen = way_of_sum(workers, nbytes, hosts, cpu_count())
                for way, seconds in taken.items():
                    records.append(
                        {
                            "n_workers": workers,
                            "way": way,
                            "size": size,
                            "n_sums": len(seconds),
                            "median_ms": round(1e3 * float(np.median(seconds)), 3),
                            "p95_ms": round(1e3 * float(np.percentile(seconds, 95)), 3),
                            "chosen": way == chosen,
                        }
                    )
                    print(records[-1], flush=True)
    print(table(records))
    if options.out is not None:
        tables = {"sums": records, "whole": [{"others_load_cores": round(load.cores(), 2)}]}
        settings = {"links_megabits": options.links, "share_of_repeats": options.share}
        add(Run("collectives", today(), describe_machine(), versions(), settings, tables), options.out)


if __name__ == "__main__":
    main()

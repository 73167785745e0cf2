"""A burst of fits by several client processes, submitted to one cluster at the same time: all must end.

    python -m benchmarks many_fits --fits 25 --clients 5 --workers 4

Fits use different solvers and request different numbers of workers; every other one is detached. The scores of each
model are compared with those of an undisturbed fit. Writes one JSON object: how long fits waited and took.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from figures import Run, add, today
from products.machine import describe_machine, versions
from soak_fits import GANG, Ground, Record, one_fit, prepare

from daskkern.training.jobs.handle import list_fits
from tests.support.cluster import local_cluster

PATIENT = replace(GANG, idle_s=600.0)
_GRACE_S = 60.0


def one_client(
    address: str, ground: Ground, folder: Path, numbers: list[int], most: int, start: Barrier, answers: Any
) -> None:
    """Submit the fits of `numbers` at once, when all clients are ready. This runs in each client process."""
    record = Record()
    with Client(address, timeout=60, set_as_default=False) as client, ThreadPoolExecutor(len(numbers)) as pool:
        start.wait(_GRACE_S)
        list(pool.map(lambda number: one_fit(client, ground, folder, number, record, PATIENT, most), numbers))
    answers.put((record.seconds, record.wrong))


def many_fits(folder: Path, fits: int, clients: int, workers: int, timeout_s: float) -> dict[str, Any]:
    """Run `fits` fits of `clients` processes, and return their outcomes. Raises TimeoutError if not all end."""
    context = multiprocessing.get_context("spawn")
    ground, answers, start = prepare(folder), context.Queue(), context.Barrier(clients)
    record = Record()
    with local_cluster(workers) as client:
        address = client.scheduler.address
        shares = [list(range(fits))[first::clients] for first in range(clients)]
        processes = [
            context.Process(target=one_client, args=(address, ground, folder, share, workers, start, answers))
            for share in shares
        ]
        begun = time.monotonic()
        for process in processes:
            process.start()
        try:
            for _ in processes:
                seconds, wrong = answers.get(timeout=max(0.1, timeout_s - (time.monotonic() - begun)))
                record.seconds += seconds
                record.wrong += wrong
            for process in processes:
                process.join(_GRACE_S)
        except Exception as error:
            found = [f"{status.metadata.name} {status.metadata.fit}: {status.state}" for status in list_fits(client)]
            raise TimeoutError(f"after {timeout_s:g} s not all fits had ended: {found}") from error
        finally:
            for process in processes:
                process.kill()
        elapsed = time.monotonic() - begun
        states = [(status.state, status.started - status.submitted) for status in list_fits(client)]
    return {
        "n_fits": len(record.seconds),
        "wrong": record.wrong,
        "states": {state: sum(found == state for found, _ in states) for state in {state for state, _ in states}},
        "median_wait_s": float(np.median([wait for _, wait in states])),
        "longest_wait_s": max(wait for _, wait in states),
        "median_fit_s": float(np.median(record.seconds)) if record.seconds else None,
        "longest_fit_s": max(record.seconds, default=None),
        "seconds": elapsed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=25)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="time limit for all fits")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="two fits of two clients, to check that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.fits, args.clients, args.workers = 2, 2, 1
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    with tempfile.TemporaryDirectory() as folder:
        found = many_fits(Path(folder), args.fits, args.clients, args.workers, args.timeout)
    print(json.dumps({**settings, **found}, indent=2))
    row = {name: value for name, value in found.items() if name not in ("wrong", "states")}
    wrong = [{"fit": sentence} for sentence in found["wrong"]]
    tables = {"whole": [row], "wrong": wrong} if wrong else {"whole": [row]}
    add(Run("many_fits", today(), describe_machine(), versions(), settings, tables), args.out)
    raise SystemExit(bool(found["wrong"]) or found["n_fits"] < args.fits)


if __name__ == "__main__":
    main()

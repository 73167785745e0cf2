"""Continuous fits on a cluster with faults: nothing may be lost, and every result must be correct.

Several clients submit fits, attached and detached, for any number of workers, by five solvers; meanwhile workers are
killed, stopped, drained, paused, restarted one by one, the scheduler is busy or replaced, and
checkpoints cannot be written (`soak_faults.py`). Other fits are run by processes of their own, which are killed
together with their supervisors, and continued. Each model's scores are compared with those of an undisturbed fit.
Writes a file of figures: faults by kind, fits, how often gangs regrouped, and how long fits took.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from figures import Run, add, today
from products.machine import describe_machine, versions
from soak_faults import FAULTS, Home, faults
from soak_fits import ORPHANED, Ground, Record, one_fit, orphans, prepare

from daskkern.training.jobs.handle import list_fits
from tests.support.cluster import fork_workers


def soak(
    folder: Path, fits: int, seconds: float, every_s: float, names: Sequence[str], workers: int, clients: int, seed: int
) -> dict[str, Any]:
    """Run `fits` fits at once, and more of them until `seconds` are over, with the faults `names`.

    Returns the record.
    """
    record, ground, begun = Record(), prepare(folder), time.monotonic()
    weights = {name: FAULTS[name][0] for name in names if name != ORPHANED}
    home, numbers, lock = Home(workers, clients), iter(range(1_000_000)), threading.Lock()

    def keep_fitting(_: int) -> None:
        while True:
            with lock:
                number = next(numbers)
            _follow(home, ground, folder, number, record)
            if time.monotonic() - begun > seconds:
                return

    try:
        with faults(home, seconds, every_s, weights, seed, record.faults), ThreadPoolExecutor(fits + 1) as pool:
            until = begun + seconds
            killed = [pool.submit(orphans, home, ground, folder, record, until) for name in names if name == ORPHANED]
            list(pool.map(keep_fitting, range(fits)))
            record.wrong += [f"fits of processes: {each.exception()!r}" for each in killed if each.exception()]
        record.lost = [status.lost for status in list_fits(home.client)]
    finally:
        home.close()
    return {
        "n_fits": len(record.seconds) + len(record.wrong),
        "wrong": record.wrong,
        "n_faults": sum(record.faults.values()),
        "faults": dict(record.faults),
        "n_gangs_formed_anew": sum(record.lost),
        "median_fit_s": float(np.median(record.seconds)) if record.seconds else None,
        "longest_fit_s": max(record.seconds, default=None),
        "seconds": time.monotonic() - begun,
    }


def _follow(home: Home, ground: Ground, folder: Path, number: int, record: Record) -> None:
    """Run a fit on the cluster, and on those that replace it."""
    generation, client = home.of(number)

    def again() -> Client | None:
        nonlocal generation
        later = home.after(generation, number)
        generation = generation if later is None else later[0]
        return None if later is None else later[1]

    one_fit(client, ground, folder, number, record, again=again)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=25, help="fits at the same time")
    parser.add_argument("--seconds", type=float, default=1200.0, help="how long new fits begin, and faults happen")
    parser.add_argument("--every", type=float, default=6.0, metavar="SECONDS", help="time between two faults")
    known = [*FAULTS, ORPHANED]
    parser.add_argument("--faults", nargs="+", choices=known, default=known, help="which; default: all")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="two fits and 5 seconds, to check that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.fits, args.seconds, args.every, args.workers, args.clients = 2, 5.0, 4.0, 2, 1
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    fork_workers()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(
            Path(folder), args.fits, args.seconds, args.every, args.faults, args.workers, args.clients, args.seed
        )
    print(json.dumps({**settings, **found}, indent=2))
    whole = {name: value for name, value in found.items() if name not in ("wrong", "faults")}
    kinds = [{"fault": name, "n": count} for name, count in found["faults"].items()]
    wrong = [{"fit": sentence} for sentence in found["wrong"]]
    tables = {"whole": [whole], "faults": kinds} | ({"wrong": wrong} if wrong else {})
    add(Run("soak", today(), describe_machine(), versions(), settings, tables), args.out)
    raise SystemExit(bool(found["wrong"]))


if __name__ == "__main__":
    main()

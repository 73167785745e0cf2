"""Continuous fits on a cluster whose workers die at random: nothing may be lost, and every result must be correct.

Several clients submit fits, attached and detached, for any number of workers, by five solvers; meanwhile workers are
killed (-9), and occasionally stopped (SIGSTOP). Each model's scores are compared with those of an undisturbed fit.
Writes a file of figures: faults, fits, how often gangs regrouped, and how long fits took.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from distributed.core import Status
from figures import Run, add, today
from products.machine import describe_machine, versions
from sklearn.datasets import load_digits

import daskkern
from daskkern import AllRows, Landmarks
from daskkern.basis import DoublyStochastic
from daskkern.cluster.gang.gang import GangSettings
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import DoublySGD, EigenPro, Falkon, NystromSGD
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import list_fits
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, worker_pids

GANG = GangSettings(silence_s=5.0, rejoin_s=20.0, idle_s=120.0, retries=20)
POLICY = CheckpointPolicy(commit_s=0.2, checkpoint_s=0.5)
CASES = {
    "eigenpro, landmarks": (Landmarks(200), EigenPro(window=3)),
    "eigenpro, all rows": (AllRows(), EigenPro()),
    "nystrom_sgd": (Landmarks(150), NystromSGD(mode="streamed")),
    "falkon": (Landmarks(150), Falkon()),
    "doubly_sgd": (DoublyStochastic(32), DoublySGD()),
}

WHAT = {"fits": "n_fits", "faults": "n_faults", "gangs_formed_anew_of_the_last_fits": "n_gangs_formed_anew"}
"""Names of the counts of a soak in a file of figures."""


@dataclass
class Record:
    """Record of a soak. Several threads append to its lists."""

    faults: int = 0
    seconds: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ground:
    """The rows of the fits, and the scores that each case must give."""

    source: StoreSource
    X: np.ndarray
    scores: dict[str, np.ndarray]


def settings_for(case: str) -> FitSettings:
    basis, solver = CASES[case]
    return FitSettings(Gaussian(1.5), SquaredHinge(), basis, solver, 1e-4, max_epochs=10, batch_size=64, device="cpu")


def prepare(folder: Path) -> Ground:
    """Write the rows to a store, and fit each case once without disturbance."""
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    source = StoreSource.at(str(folder / "digits.zarr"))
    return Ground(source, X, {case: fit(source, settings_for(case)).model.scores(X) for case in CASES})


def one_fit(
    client: Client,
    ground: Ground,
    folder: Path,
    number: int,
    record: Record,
    settings: GangSettings = GANG,
    most: int = 3,
) -> None:
    """Run one fit and compare its scores. Whether it is detached, its solver and its size, up to `most`, follow from
    `number`."""
    case = list(CASES)[number % len(CASES)]
    fitted = settings_for(case)
    gang = replace(settings, n_ranks=number % (most + 1) or None)
    begun = time.monotonic()
    try:
        if number % 2:
            model = fit(ground.source, fitted, client=client, gang=gang, policy=POLICY).model
        else:
            out = str(folder / f"{number}.zarr")
            job = FitJob(ground.source, fitted, policy=POLICY)
            model = submit(job, client, out, gang=gang).result(timeout_s=900)
    except Exception as error:
        record.wrong.append(f"fit {number} ({case}): {type(error).__name__}: {error}")
        return
    want, got = ground.scores[case], model.scores(ground.X)
    difference = float(np.abs(want - got).max() / np.abs(want).max())
    if not difference <= 1e-4:
        record.wrong.append(f"fit {number} ({case}): scores differ by {difference:.2g}")
    record.seconds.append(time.monotonic() - begun)


@contextmanager
def faults(client: Client, seconds: float, every_s: float, hangs: float, seed: int, record: Record) -> Iterator[None]:
    """Kill a random worker every `every_s` seconds, for `seconds`; a share of `hangs` is stopped instead."""
    rng, stop, begun = random.Random(seed), threading.Event(), time.monotonic()

    def haunt() -> None:
        while not stop.wait(every_s) and time.monotonic() - begun < seconds:
            with suppress(OSError, IndexError, ValueError, TimeoutError, RuntimeError):
                victim = rng.choice(list(_pids(client)))
                os.kill(victim, signal.SIGSTOP if rng.random() < hangs else signal.SIGKILL)
                record.faults += 1

    thread = threading.Thread(target=haunt, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _pids(client: Client) -> list[int]:
    """Return the processes of running workers without sending them a request, since one may hang.

    Workers that are still starting are spared, since a nanny gives up a worker that dies meanwhile.
    """
    cluster: Any = client.cluster
    processes = [worker.process for worker in cluster.workers.values()]
    return [process.pid for process in processes if process is not None and process.status == Status.running]


def soak(
    folder: Path, fits: int, seconds: float, every_s: float, hangs: float, workers: int, clients: int, seed: int
) -> dict[str, Any]:
    """Run `fits` fits at once, and more of them until `seconds` are over, while workers die. Returns the record."""
    record, ground, begun = Record(), prepare(folder), time.monotonic()
    with local_cluster(workers) as client, ThreadPoolExecutor(fits) as pool:
        worker_pids(client)
        others = [Client(client.scheduler.address, set_as_default=False) for _ in range(clients)]
        numbers = iter(range(1_000_000))
        lock = threading.Lock()

        def keep_fitting(_: int) -> None:
            while True:
                with lock:
                    number = next(numbers)
                one_fit(others[number % clients], ground, folder, number, record)
                if time.monotonic() - begun > seconds:
                    return

        try:
            with faults(client, seconds, every_s, hangs, seed, record):
                list(pool.map(keep_fitting, range(fits)))
            record.lost = [status.lost for status in list_fits(client)]
        finally:
            for other in others:
                other.close()
    return {
        "fits": len(record.seconds) + len(record.wrong),
        "wrong": record.wrong,
        "faults": record.faults,
        "gangs_formed_anew_of_the_last_fits": sum(record.lost),
        "median_fit_s": float(np.median(record.seconds)) if record.seconds else None,
        "longest_fit_s": max(record.seconds, default=None),
        "seconds": time.monotonic() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=25, help="fits at the same time")
    parser.add_argument("--seconds", type=float, default=1200.0, help="how long new fits begin, and workers die")
    parser.add_argument("--every", type=float, default=6.0, metavar="SECONDS", help="time between two faults")
    parser.add_argument("--hangs", type=float, default=0.1, help="share of the faults that stop a worker")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="two fits and 5 seconds, to check that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.fits, args.seconds, args.every, args.workers, args.clients = 2, 5.0, 4.0, 2, 1
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    with tempfile.TemporaryDirectory() as folder:
        found = soak(
            Path(folder), args.fits, args.seconds, args.every, args.hangs, args.workers, args.clients, args.seed
        )
    print(json.dumps({**settings, **found}, indent=2))
    row = {WHAT.get(name, name): value for name, value in found.items() if name != "wrong"}
    wrong = [{"fit": sentence} for sentence in found["wrong"]]
    tables = {"whole": [row], "wrong": wrong} if wrong else {"whole": [row]}
    add(Run("soak", today(), describe_machine(), versions(), settings, tables), args.out)
    raise SystemExit(bool(found["wrong"]))


if __name__ == "__main__":
    main()

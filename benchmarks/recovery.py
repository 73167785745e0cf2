"""Time from a fault to its detection and to the first step after it, and the amount of repeated work.

    python -m benchmarks recovery --out benchmarks/results-recovery.json

Each fault hits a fit on generated rows on a local cluster.
"""

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from figures import Run, add, today
from products.machine import describe_machine, versions

import daskkern
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.events import BatchFinished, Event, FitResumed, FitStarted, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, worker_pids

GANG = GangSettings(silence_s=5.0)
ROWS, FEATURES, EPOCHS = 40_000, 50, 12
Fault = Callable[[Client, list[int], str], None]


def _kill(*ranks: int) -> Fault:
    def deed(client: Client, pids: list[int], home: str) -> None:
        for rank in ranks:
            os.kill(pids[rank], signal.SIGKILL)

    return deed


def _stop(client: Client, pids: list[int], home: str) -> None:
    os.kill(pids[-1], signal.SIGSTOP)


def _retire(client: Client, pids: list[int], home: str) -> None:
    client.retire_workers([list(worker_pids(client))[-1]])


def _kill_supervisor(client: Client, pids: list[int], home: str) -> None:
    os.kill(worker_pids(client)[home], signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "kill -9 of the last rank": _kill(-1),
    "kill -9 of two ranks": _kill(0, 1),
    "kill -9 of the supervisor's worker": _kill_supervisor,
    "SIGSTOP of the last rank": _stop,
    "retire_workers": _retire,
}
SOLVERS: dict[str, tuple[BasisSpec, Solver[Any]]] = {
    "eigenpro, 1,000 landmarks": (Landmarks(1000), EigenPro()),
    "nystrom_sgd, 1,000 landmarks": (Landmarks(1000), NystromSGD(mode="streamed")),
    "eigenpro, all rows": (AllRows(), EigenPro()),
}


class Watch:
    """Records the times of events, and causes the fault in the third epoch."""

    def __init__(self, deed: Callable[[], None]) -> None:
        self.times: dict[str, float] = {}
        self.steps = {"before": 0, "resumed": 0}
        self._deed, self._per_epoch = deed, 1

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, BatchFinished):
            self._per_epoch = event.n_batches
            done = (event.epoch - 1) * event.n_batches + event.batch
            if "fault" not in self.times and event.epoch >= 3:
                self.times["fault"] = now
                threading.Thread(target=self._deed, daemon=True).start()
            if "noticed" not in self.times:
                self.steps["before"] = done
            if "resumed" in self.times:
                self.times.setdefault("first step", now)
        elif isinstance(event, WorkersLost):
            self.times.setdefault("noticed", now)
        elif isinstance(event, FitStarted) and "fault" in self.times:  # no commit was left: the fit starts over
            self.times.setdefault("noticed", now)
            self.times.setdefault("resumed", now)
        elif isinstance(event, FitResumed) and "noticed" in self.times:
            self.times.setdefault("resumed", now)
            self.steps["resumed"] = (event.epoch - 1) * self._per_epoch + event.batch


def one(source: StoreSource, settings: FitSettings, workers: int, fault: Fault) -> dict[str, float]:
    """Run one fit with one fault and return seconds and steps."""
    with local_cluster(workers) as client:
        pids = list(worker_pids(client).values())

        def home() -> str:
            tasks = client.run_on_scheduler(_supervisors)
            return str(tasks[0])

        watch = Watch(lambda: fault(client, pids, home()))
        try:
            fit(source, settings, client=client, listener=watch, gang=GANG)
        finally:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    continue
    fault_at = watch.times["fault"]
    return {
        "notice_s": watch.times["noticed"] - fault_at,
        "first_step_s": watch.times["first step"] - fault_at,
        "n_steps_redone": max(0, watch.steps["before"] - watch.steps["resumed"]),
    }


def _supervisors(dask_scheduler: Any = None) -> list[str]:
    tasks = dask_scheduler.tasks.values()
    return [t.processing_on.address for t in tasks if "-supervisor-" in str(t.key) and t.processing_on is not None]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--tiny", action="store_true", help="one fault on two workers, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.repeats, options.workers = 1, [2]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000 if options.tiny else ROWS, FEATURES)).astype(np.float32)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "d.npz", X=X, y=(np.sin(X[:, 0]) + X[:, 1] > 0).astype(int))
        daskkern.ingest([str(Path(folder) / "d.npz")], Path(folder) / "d.zarr")
        source = StoreSource.at(str(Path(folder) / "d.zarr"))
        base = FitSettings(Gaussian(7.0), SquaredHinge(), Landmarks(1000), EigenPro(), max_epochs=EPOCHS, device="cpu")
        for number, (what, fault) in enumerate(list(FAULTS.items())[: 1 if options.tiny else None]):
            for workers in options.workers:
                name = list(SOLVERS)[(number + workers) % len(SOLVERS)]  # each fault hits two solvers
                basis, solver = SOLVERS[name]
                settings = replace(base, basis=basis, solver=solver)
                runs = [one(source, settings, workers, fault) for _ in range(options.repeats)]
                record = {"fault": what, "solver": name, "n_workers": workers}
                record |= {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
                print(record, flush=True)
                records.append(record)
    summary = {"silence_s": GANG.silence_s, "n_repeats": options.repeats, "tiny": options.tiny}
    add(Run("recovery", today(), describe_machine(), versions(), summary, {"medians": records}), options.out)


if __name__ == "__main__":
    main()

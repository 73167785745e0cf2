"""The fits of a soak: attached, detached, and in processes that are killed; compared with undisturbed ones."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from sklearn.datasets import load_digits
from soak_faults import Home

import daskkern
from daskkern import AllRows, Landmarks
from daskkern.basis import DoublyStochastic
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import DaskkernError
from daskkern.events import Listener, silent
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.models import KernelModel, load_model
from daskkern.solvers import DoublySGD, EigenPro, Falkon, NystromSGD
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import list_fits
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.processes import started

GANG = GangSettings(silence_s=5.0, rejoin_s=20.0, idle_s=120.0, retries=20)
POLICY = CheckpointPolicy(commit_s=0.2, checkpoint_s=0.5)
CASES = {
    "eigenpro, landmarks": (Landmarks(200), EigenPro(window=3)),
    "eigenpro, all rows": (AllRows(), EigenPro()),
    "nystrom_sgd": (Landmarks(150), NystromSGD(mode="streamed")),
    "falkon": (Landmarks(150), Falkon()),
    "doubly_sgd": (DoublyStochastic(32), DoublySGD()),
}

ORPHANED = "client and supervisor"
"""The name of the fault that kills a client's process and its supervisor's worker."""

_ORPHAN = """
import sys
from pathlib import Path
from distributed import Client
from daskkern.events import BatchFinished
from soak_fits import orphan_fit
if __name__ == "__main__":
    address, store, case, name, place, ranks = sys.argv[1:]
    def listener(event):
        if isinstance(event, BatchFinished) and event.epoch >= 2:
            print("going", flush=True)
    with Client(address, timeout=60, set_as_default=False) as client:
        orphan_fit(client, store, case, name, place, int(ranks), False, listener)
"""


@dataclass
class Record:
    """Record of a soak. Several threads append to its lists."""

    faults: Counter[str] = field(default_factory=Counter)
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


Again = Callable[[], Client | None]
"""Returns a client of the cluster that has replaced the one of a fit, None if there is none."""


def one_fit(
    client: Client,
    ground: Ground,
    folder: Path,
    number: int,
    record: Record,
    settings: GangSettings = GANG,
    most: int = 3,
    again: Again = lambda: None,
) -> None:
    """Run one fit and compare its scores. Whether it is detached, its solver and its size, up to `most`, follow from
    `number`. Where its cluster has been replaced meanwhile, it is resumed from its checkpoint."""
    case = list(CASES)[number % len(CASES)]
    gang = replace(settings, n_ranks=number % (most + 1) or None)
    begun, resume = time.monotonic(), False
    while True:
        try:
            model = _fitted(client, ground, folder, number, gang, resume=resume)
            break
        except Exception as error:
            later = again()
            if later is None:
                record.wrong.append(f"fit {number} ({case}): {type(error).__name__}: {error}")
                return
            client, resume = later, True
    compare(model, ground, case, f"fit {number}", record)
    record.seconds.append(time.monotonic() - begun)


def _fitted(
    client: Client, ground: Ground, folder: Path, number: int, gang: GangSettings, *, resume: bool
) -> KernelModel:
    """Run or resume a fit, attached or detached, and return its model."""
    fitted, out = settings_for(list(CASES)[number % len(CASES)]), folder / f"{number}.zarr"
    policy = replace(POLICY, resume=resume)
    if number % 2:
        policy = replace(policy, checkpoint=str(folder / f"{number}.checkpoint"))
        return fit(ground.source, fitted, client=client, gang=gang, policy=policy).model
    if resume and out.exists():
        return load_model(str(out))
    job = FitJob(ground.source, fitted, policy=policy)
    return submit(job, client, str(out), gang=gang).result(timeout_s=900)


def compare(model: KernelModel, ground: Ground, case: str, name: str, record: Record) -> None:
    """Record it where the scores of a model are not those of an undisturbed fit."""
    want, got = ground.scores[case], model.scores(ground.X)
    difference = float(np.abs(want - got).max() / np.abs(want).max())
    if not difference <= 1e-4:
        record.wrong.append(f"{name} ({case}): scores differ by {difference:.2g}")


def orphan_fit(
    client: Client, store: str, case: str, name: str, place: str, ranks: int, resume: bool, listener: Listener = silent
) -> KernelModel:
    """Run or resume the fit of a process that is killed, which is named `name` on the cluster, on so many `ranks`."""
    policy = replace(POLICY, checkpoint=place, resume=resume)
    source, settings = StoreSource.at(store), settings_for(case)
    metadata, gang = new_metadata(name), replace(GANG, n_ranks=ranks)
    return fit(source, settings, client=client, gang=gang, policy=policy, listener=listener, metadata=metadata).model


def orphans(home: Home, ground: Ground, folder: Path, record: Record, until: float, most: int = 3) -> None:
    """Run fits in processes of their own, kill each with its supervisor, and resume it here, until the time `until`.

    One at least is run. They have 1 to `most` ranks: the supervisor dies with the only one, or others outlive it.
    """
    for number in range(1_000_000):
        if number and time.monotonic() > until:
            return
        case, place = list(CASES)[number % len(CASES)], str(folder / f"orphan-{number}.checkpoint")
        generation, client = home.of(number)
        name, ranks = f"orphan{number}", number % most + 1
        _orphan(home, client, ground, case, name, place, ranks, record.faults)
        for _ in range(5):
            try:
                model = orphan_fit(client, ground.source.location, case, f"{name}again", place, ranks, True)
            except Exception as error:
                later = home.after(generation, number)
                if later is None:
                    record.wrong.append(f"{name} ({case}): {type(error).__name__}: {error}")
                    break
                generation, client = later
            else:
                compare(model, ground, case, name, record)
                break


def _orphan(
    home: Home, client: Client, ground: Ground, case: str, name: str, place: str, ranks: int, counts: Counter[str]
) -> None:
    """Start the process of a fit, wait until its second epoch, and kill it and the worker of its supervisor."""
    address = client.scheduler.address
    command = (sys.executable, "-c", _ORPHAN, address, ground.source.location, case, name, place, ranks)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as child:
        assert child.stdout is not None
        if child.stdout.readline() != "going\n":  # its cluster was replaced
            return
        with suppress(OSError, KeyError, StopIteration, RuntimeError, DaskkernError):
            fit_id = next(status.metadata.fit for status in list_fits(client) if status.metadata.name == name)
            supervisor = home.pid_of(client.run_on_scheduler(_supervisor_of, fit_id=fit_id))
            child.kill()
            os.kill(supervisor, signal.SIGKILL)
            counts[ORPHANED] += 1


def _supervisor_of(dask_scheduler: Any, fit_id: str) -> str | None:
    """Return the worker that supervises a fit; None where there is none at this moment."""
    tasks = [task for key, task in dask_scheduler.tasks.items() if "-supervisor-" in str(key) and fit_id in str(key)]
    return next((task.processing_on.address for task in tasks if task.processing_on is not None), None)

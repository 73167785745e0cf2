"""What the cells of the kill matrix share: solvers and settings, a running fit's cluster, and undisturbed scores."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_digits

import daskkern
from daskkern import AllRows, Landmarks
from daskkern.basis import BasisSpec, DoublyStochastic
from daskkern.cluster.gang.gang import GangSettings
from daskkern.events import BatchFinished, Event, FitResumed
from daskkern.kernels import Gaussian
from daskkern.losses import Loss, SquaredHinge
from daskkern.models import KernelModel
from daskkern.solvers import DoublySGD, EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

QUICK = GangSettings(silence_s=3.0, rejoin_s=6.0, idle_s=30.0)
DEAF = replace(QUICK, silence_s=30.0)
"""For faults that Dask notices itself: where much else runs, a healthy worker may be silent for 3 s."""
EPOCHS = 12
LONGER = {"EigenPro centres": 150, "EigenPro full": 40, "NystromSGD": 60, "Falkon": 40}
"""Epochs for faults that take longer than a dozen epochs of a fast solver."""
SAFE = CheckpointPolicy(commit_s=0.05)

SOLVERS: dict[str, tuple[BasisSpec, Solver[Any], Loss, float]] = {
    "EigenPro centres": (Landmarks(200), EigenPro(window=3), SquaredHinge(), 0.0),
    "EigenPro full": (AllRows(), EigenPro(), SquaredHinge(), 0.0),
    "NystromSGD": (Landmarks(150), NystromSGD(mode="streamed"), SquaredHinge(), 0.0),
    "Falkon": (Landmarks(200), Falkon(), SquaredHinge(), 1e-4),  # with the squared loss it ends after 30 short epochs
    "DoublySGD": (DoublyStochastic(16), DoublySGD(), SquaredHinge(), 1e-5),
}


@dataclass
class Scene:
    """A running fit's cluster: processes and addresses of its workers, in rank order."""

    client: Client
    pids: list[int]
    addresses: list[str]
    hoarding: Any = None
    preempting: list[int] = field(default_factory=list)
    """The numbers of ranks of fits that have preempted the one that runs."""

    def kill(self, *ranks: int, how: int = signal.SIGKILL) -> None:
        for rank in ranks:
            os.kill(self.pids[rank], how)

    def supervisor(self) -> int:
        """Return which worker supervises the fit."""

        def where(dask_scheduler: Any) -> str:
            tasks = dask_scheduler.tasks.items()
            return next(task.processing_on.address for key, task in tasks if "supervisor" in str(key))

        return self.addresses.index(self.client.run_on_scheduler(where))


def settings_for(solver: str, n_epochs: int) -> FitSettings:
    basis, method, loss, alpha = SOLVERS[solver]
    return FitSettings(Gaussian(1.5), loss, basis, method, alpha, max_epochs=n_epochs, batch_size=64, device="cpu")


def digits_store(folder: Path) -> StoreSource:
    """Write the digits to a store in `folder`."""
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


class Undisturbed:
    """The scores of undisturbed fits in this process, each computed once."""

    def __init__(self, source: StoreSource) -> None:
        self.source = source
        self._X = load_digits(return_X_y=True)[0]
        self._known: dict[FitSettings, np.ndarray] = {}

    def assert_same(self, settings: FitSettings, model: KernelModel) -> None:
        """Fail unless the scores of `model` are those of an undisturbed fit, to 1e-4 of the largest."""
        if settings not in self._known:
            self._known[settings] = fit(self.source, settings).model.scores(self._X)
        want, got = self._known[settings], model.scores(self._X)
        assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()


def cells(rows: Sequence[str], long: Sequence[str] = ()) -> list[Any]:
    """Return a parameter for each row with each solver on 2 and on 3 workers.

    The checks of a change run a cover, in which every row but the `long` ones, which take minutes, is once, in turn
    with the solvers and the numbers of workers.
    """
    solvers, workers = cycle(SOLVERS), cycle((2, 3, 3, 2))
    cover = {cell for cell in zip(rows, solvers, workers, strict=False) if cell[0] not in long}
    return [
        pytest.param(
            *cell,
            id=", ".join(map(str, cell)),
            marks=pytest.mark.repeated if cell in cover else pytest.mark.kill_matrix,
        )
        for cell in product(rows, SOLVERS, (2, 3))
    ]


class Story:
    """Listens to a fit, and does something once, in its third epoch."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._deed, self._done = deed, False
        self._begun = self._ended = 0.0

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._ended = time.monotonic()
        if isinstance(event, BatchFinished) and event.epoch >= 3 and not self._done:
            self._done, self._begun = True, time.monotonic()
            threading.Thread(target=self._deed, daemon=True).start()

    @property
    def seconds_after(self) -> float:
        """Seconds from the deed to the last event."""
        return self._ended - self._begun

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def goes_back(self) -> list[FitResumed]:
        """Return where a gang went on from an earlier batch than one that had been reported."""
        found, farthest = [], (0, 0)
        for event in self.events:
            if isinstance(event, BatchFinished):
                farthest = max(farthest, (event.epoch, event.batch))
            elif isinstance(event, FitResumed) and (event.epoch, event.batch) < farthest:
                found.append(event)
        return found

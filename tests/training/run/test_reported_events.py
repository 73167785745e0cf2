"""What a fit tells of itself beside its epochs: the spectrum, its ranks, and its checkpoints."""

import math
from pathlib import Path

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import CheckpointWritten, Event, FitStarted, RankReported, SpectrumFound
from daskkern.solvers import EigenPro, NystromSGD, Pegasos, Solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.fit import fit
from daskkern.training.run.rank_state import RankReporter
from tests.support.fits import toy_settings, toy_source


def _reported(basis: BasisSpec, solver: Solver[object], policy: CheckpointPolicy | None = None) -> list[Event]:
    events: list[Event] = []
    fit(toy_source(weighted=True), toy_settings(basis, solver), listener=events.append, policy=policy)
    return events


@pytest.mark.parametrize(
    ("basis", "solver"),
    [(AllRows(), EigenPro()), (Landmarks(40), EigenPro()), (Landmarks(40), NystromSGD()), (Linear(), EigenPro())],
    ids=["all rows", "landmarks", "nystrom", "linear"],
)
def test_the_spectrum_is_told_once_after_the_start(basis: BasisSpec, solver: Solver[object]) -> None:
    events = _reported(basis, solver)
    (spectrum,) = [event for event in events if isinstance(event, SpectrumFound)]
    started = next(i for i, event in enumerate(events) if isinstance(event, FitStarted))
    assert events.index(spectrum) > started
    before, after = np.array(spectrum.eigenvalues), np.array(spectrum.flattened)
    assert before.shape == after.shape
    assert (np.diff(before) <= 1e-12).all()
    assert (after <= before * (1 + 1e-9)).all()
    assert (after > 0).all()
    assert after.max() / after.min() < before.max() / before.min() or before.size == 1
    assert spectrum.batch_size >= 1
    assert spectrum.step > 0
    assert spectrum.subsample > 1


def test_eigenpro_flattens_to_its_first_undamped_eigenvalue() -> None:
    events = _reported(Landmarks(40), EigenPro(rho=1.0, tau=1.0, n_directions=5))
    (spectrum,) = [event for event in events if isinstance(event, SpectrumFound)]
    np.testing.assert_allclose(spectrum.flattened, [spectrum.eigenvalues[5]] * 6)


def test_a_solver_without_a_spectrum_tells_none() -> None:
    events = _reported(AllRows(), Pegasos())
    assert not [event for event in events if isinstance(event, SpectrumFound)]


@pytest.mark.parametrize(("interval_s", "n_reports"), [(0.0, 4), (1e9, 1)])
def test_reports_are_as_far_apart_as_they_are_to_be(interval_s: float, n_reports: int) -> None:
    reports: list[Event] = []
    plan = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 30)
    report = RankReporter(RankContext(report=reports.append), 3, plan, 2, np, interval_s=interval_s)
    for _ in range(4):
        report()
    assert [(event.rank, event.device) for event in reports] == [(3, "CPU, 2 threads")] * n_reports


def test_a_rank_tells_its_memory_against_the_plan() -> None:
    reports = [event for event in _reported(Landmarks(40), EigenPro()) if isinstance(event, RankReported)]
    last = reports[-1]
    assert (last.rank, last.worker) == (0, "this process")
    assert last.device.startswith("CPU, ")
    assert 10**7 < last.memory_bytes < 10**11
    assert 10**8 < last.planned_bytes < 10**11
    assert math.isnan(last.gpu_use)


def test_checkpoints_are_told_when_they_are_complete(tmp_path: Path) -> None:
    policy = CheckpointPolicy(checkpoint=str(tmp_path / "kept.zarr"), checkpoint_s=0.0, commit_s=0.0)
    written = [event for event in _reported(Landmarks(40), EigenPro(), policy) if isinstance(event, CheckpointWritten)]
    assert written
    assert all(event.seconds > 0 for event in written)
    assert [(event.epoch, event.batch) for event in written] == sorted({(e.epoch, e.batch) for e in written})

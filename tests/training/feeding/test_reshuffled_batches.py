"""Batches that hold other rows in every epoch: the same bits from a seed, wherever a run is cut and rows are kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, Linear
from daskkern.cluster.gang.rank_context import Regroup
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.events import EpochFinished, Event
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import SAG, SDCA, SGD, DoublySGD, EigenPro, NystromSGD, Solver
from daskkern.training.feeding import batch_reshuffling
from daskkern.training.feeding.batch_reshuffling import reshuffles_batches
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.memory_plan import ALL_ROWS, plan_memory, row_bytes
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs, toy_settings, toy_source
from tests.support.plans import CENTRES

WAYS = {
    "all rows": (AllRows(), EigenPro(averaging=0.7)),
    "window of 2": (Landmarks(40), EigenPro(window=2)),
    "nystrom": (Landmarks(40), NystromSGD(mode="streamed", averaging=0.7)),
    "memory of rows": (AllRows(), SAG()),
    "dual ascent": (Landmarks(40), SDCA()),
}
ways = pytest.mark.parametrize(("basis", "solver"), WAYS.values(), ids=WAYS)


def _fit(basis: BasisSpec, solver: Solver[object], reshuffle: bool = True) -> Fit:
    made = Fit.of(toy_source(weighted=True), replace(toy_settings(basis, solver), batch_size=8))
    assert isinstance(made.prepared.plan, BatchPlan)
    plan = replace(made.prepared.plan, reshuffle=reshuffle, chunk_rows=8, window_rows=32)
    return replace(made, prepared=replace(made.prepared, plan=plan))


@pytest.mark.one_in(5)
@ways
def test_a_run_in_three_parts_has_the_same_bits(basis: BasisSpec, solver: Solver[object]) -> None:
    made = _fit(basis, solver)
    whole = made.scores(made.results(2))  # each rank reads in every epoch
    runs = Runs(made)  # one of the ranks keeps rows from its first whole epoch on
    for until in (5, 25):
        assert all(isinstance(result, Regroup) for result in runs.run(2, until=until))
    np.testing.assert_array_equal(runs.scores(2), whole)


@pytest.mark.one_in(5, 2)
@ways
def test_any_number_of_ranks_makes_one_model(basis: BasisSpec, solver: Solver[object]) -> None:
    made = _fit(basis, solver)
    one = made.scores(made.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(made.scores(made.results(ranks)), one, rtol=1e-6, atol=1e-7)
    fixed = _fit(basis, solver, reshuffle=False)
    assert not np.allclose(fixed.scores(fixed.results(1)), one, rtol=1e-6, atol=1e-7)


def test_every_epoch_meets_every_row_once_in_other_batches() -> None:
    made = _fit(Landmarks(40), EigenPro())
    plan = made.prepared.plan
    assert isinstance(plan, BatchPlan)
    met = [[frozenset(plan.positions(int(b), epoch).tolist()) for b in plan.order(epoch)] for epoch in (1, 2)]
    for batches in met:
        assert sorted(row for batch in batches for row in batch) == list(range(plan.n_rows))
    assert not set(met[0]) & set(met[1])


def _requested(basis: BasisSpec, solver: Solver[object], keep: str = "auto") -> FitSettings:
    return FitSettings(Gaussian(1.0), Squared(), basis, solver, keep_blocks=keep)


def test_what_can_be_cached_decides_and_not_the_memory() -> None:
    million = 1_000_000
    assert reshuffles_batches(_requested(Landmarks(10_000), EigenPro()), million, 400)  # 40 GB of blocks
    assert not reshuffles_batches(_requested(Landmarks(7_000), EigenPro()), million, 400)  # 28 GB
    assert reshuffles_batches(_requested(Landmarks(10_000), EigenPro(), "never"), million, 400)
    assert not reshuffles_batches(_requested(Landmarks(7_000), EigenPro(), "never"), million, 400)
    assert not reshuffles_batches(_requested(Landmarks(10_000), EigenPro(), "disk"), million, 400)
    assert reshuffles_batches(_requested(AllRows(), EigenPro()), 100_000, 400)
    assert not reshuffles_batches(_requested(Linear(), SGD()), million, 400)  # 0.4 GB of rows
    assert reshuffles_batches(_requested(Linear(), SGD()), 100 * million, 400)


@pytest.fixture(params=["dense", "sparse"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6)).astype(np.float32)
    sparse = request.param == "sparse"
    with StoreWriter(
        tmp_path / "s", n_features=6, task="regression", has_weight=True, chunk_rows=100, sparse=sparse
    ) as writer:
        writer.append(scipy.sparse.csr_array(np.where(X > 0, X, 0)) if sparse else X, X[:, :1], 1 + np.abs(X[:, 1]))
    return tmp_path / "s"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("basis", [Landmarks(50), DoublyStochastic()], ids=["landmarks", "doubly stochastic"])
def test_rows_that_fit_are_read_once(store: Path, basis: BasisSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reshuffling, "CACHED_BYTES", 0)
    monkeypatch.setattr("daskkern.training.setup.shared.DEFAULT_WINDOW_BYTES", 1 << 12)
    reads = [0]
    parts_at, read = StoreRows.parts_at, StoreRows.read

    def counted(self: StoreRows, *arguments: object) -> object:
        reads[0] += 1
        return read(self, *arguments)  # type: ignore[arg-type]

    def counted_parts(self: StoreRows, *arguments: object) -> object:
        reads[0] += 1
        return parts_at(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreRows, "read", counted)
    monkeypatch.setattr(StoreRows, "parts_at", counted_parts)
    solver = EigenPro() if isinstance(basis, Landmarks) else DoublySGD()
    settings = FitSettings(Gaussian(2.0), Squared(), basis, solver, 1e-3, max_epochs=3, batch_size=40)
    found = {}
    for share in (0.0, 0.5):
        monkeypatch.setattr("daskkern.training.planning.memory_plan.ROWS_SHARE", share)
        after: list[int] = []

        def listen(event: Event, after: list[int] = after) -> None:
            if isinstance(event, EpochFinished):
                after.append(reads[0])

        result = fit(StoreSource.at(str(store)), settings, listener=listen)
        found[share] = result.model.coef
        assert (after[2] == after[1] == after[0]) == (share > 0)
    np.testing.assert_array_equal(found[0.0], found[0.5])


def test_blocks_of_batches_that_are_dealt_anew_are_not_kept_and_their_rows_are() -> None:
    for entries in (0, 10):
        sizes = replace(CENTRES, n=20_000_000, entries=entries, reshuffle=True)
        plan = plan_memory(sizes, 200 * 10**9, keep="auto", epochs=5)
        assert (plan.kept, plan.kept_wanted) == (0, 0)
        assert plan.keeps_rows
        held = row_bytes(sizes)
        assert held >= 20_000_000 * (sizes.d * 4 * (2 if entries else 1) + 8 * sizes.c + 8)
        assert dict(plan.items)[ALL_ROWS] == held
        assert not plan_memory(sizes, 200 * 10**9, keep="auto", epochs=1).keeps_rows
    on_device = plan_memory(replace(sizes, device="gpu"), 200 * 10**9, 80 * 10**9, epochs=5)
    assert on_device.rows_on_host
    dense = replace(CENTRES, n=2_000_000, reshuffle=True, device="gpu")
    there = plan_memory(dense, 200 * 10**9, 80 * 10**9, epochs=5)
    assert (there.keeps_rows, there.rows_on_host) == (True, False)
    assert dict(there.device_items)[ALL_ROWS] == row_bytes(dense)
    assert not plan_memory(dense, 200 * 10**9, 80 * 10**9, epochs=1).keeps_rows

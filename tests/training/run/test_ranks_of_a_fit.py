"""The ranks of one fit, as threads of this process: however many there are, they make one model."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DivergenceError
from daskkern.events import BatchFinished, EpochFinished, Event, FitFinished, FitStarted, silent
from daskkern.kernels import Laplacian
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.feeding.sources import ArraySource, SourceInfo
from daskkern.training.feeding.stored_features import stored_features
from daskkern.training.planning.memory import MemoryPlan
from daskkern.training.run.rank import FitRankResult, RankTask, run_rank
from daskkern.training.run.settings import EarlyStopping, FitSettings
from daskkern.training.setup.prepare import Prepared, prepare
from tests.support.threads import run_threads

N, D = 130, 4


def _never() -> bool:
    return False


def _source(*, weighted: bool = False, regression: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    values = X[:, 0] + np.sin(2 * X[:, 1])
    y = values[:, None] if regression else np.digitize(values, [-0.7, 0.7])
    classes = None if regression else ("low", "middle", "high")
    task = "regression" if regression else "classification"
    weight = rng.uniform(0.2, 2.0, N) if weighted else None
    return ArraySource(X, y, weight, SourceInfo(N, D, task, classes, Scaling(), None, 1, True))


def _settings(
    basis: BasisSpec, solver: Solver[object], loss: Loss | None = None, dtype: str = "float64"
) -> FitSettings:
    return FitSettings(
        Laplacian(3.0), loss or Logistic(), basis, solver, 1e-3, max_epochs=3, batch_size=32, dtype=dtype, device="cpu"
    )


@dataclass
class Fit:
    """One prepared fit that can be run on any number of ranks."""

    source: ArraySource
    settings: FitSettings
    prepared: Prepared
    features: str | None = None

    @classmethod
    def of(cls, source: ArraySource, settings: FitSettings) -> "Fit":
        return cls(source, settings, prepare(source, settings, settings.early_stopping is not None))

    def results(
        self,
        ranks: int,
        kept: int = 0,
        keeps_rows: bool = False,
        listen: Callable[[Event], None] = silent,
        stop: Callable[[], bool] = _never,
    ) -> list[FitRankResult]:
        memory = MemoryPlan(items=(), kept=kept, kept_wanted=kept, keeps_rows=keeps_rows, budget=1 << 40)

        def work(comm: Communicator) -> FitRankResult:
            task = RankTask(self.source, self.settings, self.prepared, None, memory, 1, self.features)
            result = run_rank(comm, task, RankContext(listen if comm.rank == 0 else silent, stop))
            assert isinstance(result, FitRankResult)
            return result

        return run_threads(ranks, work)

    def scores(self, results: list[FitRankResult]) -> HostArray:
        """Return the values at all rows of the model that the ranks made together."""
        ids = np.concatenate([result.ids for result in results])
        assert sorted(ids) == list(range(self.prepared.basis.n_columns))
        X = self.source.X.astype(self.settings.dtype)
        kernel = self.prepared.basis.kernel
        return sum(kernel.block(X, result.points) @ result.coef for result in results)


ways = pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (AllRows(), EigenPro()),
        (Landmarks(40), EigenPro(window=1)),
        (Landmarks(40), EigenPro(window=2)),
        (Landmarks(40), EigenPro(projection="eigenpro")),
        (Landmarks(40), NystromSGD(mode="streamed")),
        (Landmarks(40), Falkon(newton_passes=3)),
    ],
    ids=["all_rows", "window_of_1", "window_of_2", "iterative_projection", "nystrom", "falkon"],
)


@ways
@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-9), ("float32", 1e-4)])
def test_any_number_of_ranks_makes_the_same_model(
    basis: BasisSpec, solver: Solver[object], dtype: str, accuracy: float
) -> None:
    fit = Fit.of(_source(weighted=True), _settings(basis, solver, dtype=dtype))
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=accuracy * np.abs(alone).max())


@ways
def test_kept_kernel_blocks_and_rows_change_nothing(basis: BasisSpec, solver: Solver[object]) -> None:
    fit = Fit.of(_source(), _settings(basis, solver))
    fresh = fit.scores(fit.results(2))
    some, every = 2 * 32 * 65 * 8, 1 << 30
    for kept, keeps_rows in ((some, False), (every, False), (0, True), (every, True)):
        found = fit.scores(fit.results(2, kept, keeps_rows))
        np.testing.assert_allclose(found, fresh, rtol=0, atol=1e-10)


def test_stored_eigenfeatures_make_the_streamed_model() -> None:
    source = _source(weighted=True)
    streamed = Fit.of(source, _settings(Landmarks(40), NystromSGD(mode="streamed")))
    expected = streamed.scores(streamed.results(1))
    with stored_features(source, streamed.settings, streamed.prepared) as path:
        stored = replace(streamed, features=path)
        for ranks in (1, 2, 3):
            found = stored.scores(stored.results(ranks))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_more_ranks_than_columns_still_make_the_model() -> None:
    fit = Fit.of(_source(), _settings(Landmarks(2), EigenPro()))
    alone = fit.scores(fit.results(1))
    np.testing.assert_allclose(fit.scores(fit.results(3)), alone, rtol=0, atol=1e-9)


def test_ranks_without_columns_of_the_subsample_and_with_no_others_make_the_model() -> None:
    fit = Fit.of(_source(), replace(_settings(Landmarks(60), EigenPro(subsample=30)), batch_size=65))
    columns = [fit.prepared.basis.split(rank, 12) for rank in range(12)]
    assert any(each.n_head == 0 for each in columns)
    assert any(each.n_head == each.ids.size for each in columns)
    alone = fit.scores(fit.results(1))
    for ranks in (3, 12):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-8 * np.abs(alone).max())


def test_every_rank_ends_alike_and_the_events_tell_the_story() -> None:
    fit = Fit.of(_source(regression=True), _settings(AllRows(), EigenPro(), Squared()))
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    assert [(result.epochs, result.reason) for result in results] == [(3, "max_epochs")] * 2
    assert isinstance(events[0], FitStarted)
    assert isinstance(events[-1], FitFinished)
    batches = fit.prepared.plan.n_batches
    assert [(e.epoch, e.batch) for e in events if isinstance(e, BatchFinished)] == [
        (epoch, batch) for epoch in (1, 2, 3) for batch in range(1, batches + 1)
    ]
    losses = [event.loss for event in events if isinstance(event, EpochFinished)]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_one_rank_that_is_asked_to_stop_stops_them_all() -> None:
    fit = Fit.of(_source(), _settings(AllRows(), EigenPro()))
    requested = iter([False, False, True])
    results = fit.results(2, stop=lambda: next(requested, False))
    assert [result.reason for result in results] == ["interrupted"] * 2
    assert np.isfinite(fit.scores(results)).all()


def test_early_stopping_returns_the_best_epoch_on_every_rank() -> None:
    settings = replace(
        _settings(AllRows(), EigenPro(averaging=0.0)),
        early_stopping=EarlyStopping(0.2, 1, monitor="score"),
        max_epochs=30,
    )
    fit = Fit.of(_source(), settings)
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    assert {result.reason for result in results} == {"early_stopping"}
    watched = [event.validation_score for event in events if isinstance(event, EpochFinished)]
    assert len(watched) == results[0].epochs < 30
    held_out = fit.prepared.validation
    assert held_out is not None
    accuracy = (fit.scores(results)[held_out].argmax(axis=1) == fit.source.y[held_out]).mean()
    assert accuracy == pytest.approx(max(watched), abs=1e-12) == pytest.approx(watched[-2], abs=1e-12)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_numbers_that_left_their_range_end_the_fit_in_a_sentence() -> None:
    source = _source(regression=True)
    fit = Fit.of(source, _settings(AllRows(), EigenPro(), Squared()))
    fit.prepared = replace(fit.prepared, state=replace(fit.prepared.state, beta=1e-9, top=1e-12))
    fit.settings = replace(fit.settings, alpha=0.0, max_epochs=60)
    with pytest.raises(DivergenceError, match=r"the iteration diverged; take a smaller"):
        fit.results(2)

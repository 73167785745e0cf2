"""A fit that ends worse than one of its epochs returns the model of that epoch, and says so."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from daskkern import KernelRegressor
from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, Linear, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.events import Event, FitFinished, StageFinished
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge, parse_loss
from daskkern.solvers import (
    BSGD,
    SGD,
    AdaGrad,
    Batch,
    DoublySGD,
    EigenPro,
    NystromSGD,
    Problem,
    Shard,
    Snapshot,
    Solver,
)
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.best_epoch import LeastLoss
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs

N, D, BATCH = 400, 3, 50
SPOILED_AFTER = 3  # epochs
SOLVERS: dict[str, tuple[Solver[Any], BasisSpec]] = {
    "eigenpro, landmarks": (EigenPro(window=2, averaging=0.0), Landmarks(40)),
    "eigenpro, all rows": (EigenPro(averaging=0.0), AllRows()),
    "eigenpro, linear": (EigenPro(averaging=0.0), Linear()),
    "nystrom_sgd": (NystromSGD(mode="streamed"), Landmarks(40)),
    "sgd, random features": (SGD(averaging=0.0), RandomFeatures(60)),
    "adagrad": (AdaGrad(l1=1e-4), RandomFeatures(60)),
    "doubly_sgd": (DoublySGD(), DoublyStochastic(4)),
    "bsgd": (BSGD(), Landmarks(30)),
}


def _spoiled(solver: Solver[Any]) -> Solver[Any]:
    """Return the solver whose coefficients are made 20 times as large after the third epoch and each that follows."""

    class Spoiled(type(solver)):  # type: ignore[misc]
        def step(self, problem: Problem, state: Any, batch: Batch, comm: Communicator) -> tuple[Any, float]:
            state, loss = super().step(problem, state, batch, comm)
            found = self.snapshot(problem, state)
            if not batch.last or found is None:
                return state, loss
            whole = found.gather_to(comm, range(comm.size))
            assert whole is not None
            named = (whole.numbers.get(name) for name in ("batches", "step", "steps"))
            steps = next((n for n in named if n is not None), whole.numbers.get("t", 0) / BATCH)
            if steps < SPOILED_AFTER * problem.batches_per_epoch:
                return state, loss
            shards = {name: Shard(shard.ids, 20 * shard.values) for name, shard in whole.shards.items()}
            arrays = {name: values * (20 if name in ("coef", "w") else 1) for name, values in whole.whole.items()}
            return self.restore(problem, Snapshot(shards, arrays, whole.numbers)), loss

    made = copy(solver)
    object.__setattr__(made, "__class__", Spoiled)
    return made


def _source(*, labels: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    values = X[:, 0] + np.sin(2 * X[:, 1])
    y = (values > 0).astype(int) if labels else values[:, None]
    task, classes = ("classification", ("no", "yes")) if labels else ("regression", None)
    return ArraySource(X, y, None, SourceInfo(N, D, task, classes, Scaling(), None, 1, True))


def _fit(name: str, epochs: int = 6, spoil: Callable[[Solver[Any]], Solver[Any]] = _spoiled, **more: Any) -> Fit:
    solver, basis = SOLVERS[name]
    labels = isinstance(solver, BSGD)
    settings = FitSettings(
        Gaussian(2.0), SquaredHinge() if labels else parse_loss("squared"), basis, solver, 1e-4,
        max_epochs=epochs, batch_size=BATCH, dtype="float64", device="cpu",
    )  # fmt: skip
    fit = Fit.of(_source(labels=labels), replace(settings, **more))
    fit.settings = replace(fit.settings, solver=spoil(solver))
    return fit


def _said(events: list[Event], stage: str = "best epoch") -> list[str]:
    return [event.detail for event in events if isinstance(event, StageFinished) and event.stage == stage]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "ranks"), [*((name, 1) for name in SOLVERS), ("eigenpro, landmarks", 2), ("sgd, random features", 3)]
)
def test_the_model_of_the_best_epoch_is_returned(name: str, ranks: int) -> None:
    events: list[Event] = []
    fit = _fit(name)
    found = fit.results(ranks, listen=events.append)
    epoch = found[0].best_epoch
    assert 1 <= epoch < SPOILED_AFTER
    assert {result.best_epoch for result in found} == {epoch}
    (note,) = _said(events)
    assert f"the model of epoch {epoch} is returned" in note
    assert {result.note for result in found} == {note}
    finished = [event for event in events if isinstance(event, FitFinished)]
    assert [(event.best_epoch, event.note, event.epochs) for event in finished] == [(epoch, note, 6)]


@pytest.mark.parametrize(("name", "ranks"), [("eigenpro, landmarks", 2), ("eigenpro, all rows", 1)])
def test_it_is_the_model_that_a_fit_of_so_many_epochs_ends_with(name: str, ranks: int) -> None:
    """The end of epoch 3 is spoiled, although epoch 3 has the least mean loss: the best one is that of epoch 2."""
    spoiled = _fit(name)
    found = spoiled.results(ranks)
    right = _fit(name, epochs=found[0].best_epoch, spoil=lambda solver: solver)
    right.prepared = spoiled.prepared
    assert found[0].best_epoch == SPOILED_AFTER - 1
    np.testing.assert_array_equal(spoiled.scores(found), right.scores(right.results(ranks)))


@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "bsgd"])  # whose last epoch may well be worse
def test_a_fit_that_goes_well_returns_its_end_and_says_nothing(name: str) -> None:
    events: list[Event] = []
    fit = _fit(name, spoil=lambda solver: solver)
    assert {result.best_epoch for result in fit.results(1, listen=events.append)} == {0}
    assert not _said(events)


def test_a_penalty_that_takes_over_is_no_divergence() -> None:
    """From small coefficients on the loss may rise towards the optimum of the objective; the model is the last one."""
    events: list[Event] = []
    fit = _fit("sgd, random features", epochs=8, spoil=lambda solver: solver, alpha=0.5)
    assert fit.results(1, listen=events.append)[0].best_epoch == 0
    assert not _said(events)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["eigenpro, landmarks", "doubly_sgd", "bsgd"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_best_epoch_survives_a_commit(name: str, ranks: int) -> None:
    fit = _fit(name)
    if fit.settings.solver.is_serial and ranks > 1:
        ranks = 1
    whole = fit.results(ranks)
    runs = Runs(fit)
    for until in (11, 11, 11):
        runs.run(ranks, until=until)
    last = runs.run(ranks)
    assert [result.best_epoch for result in last] == [result.best_epoch for result in whole]
    for result, expected in zip(last, whole, strict=True):
        np.testing.assert_array_equal(result.coef, expected.coef)
        np.testing.assert_array_equal(np.asarray(result.points), np.asarray(expected.points))


def test_the_estimator_names_the_epoch_and_warns() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    model = KernelRegressor(
        "gaussian:2", basis=Landmarks(40), solver=_spoiled(EigenPro(averaging=0.0)), max_epochs=6, device="cpu"
    )
    with pytest.warns(ConvergenceWarning, match=r"the model of epoch \d is returned"):
        model.fit(X, X[:, 0])
    assert model.best_epoch_ < SPOILED_AFTER < model.n_iter_ == 6
    assert model.score(X, X[:, 0]) > 0.9


def test_a_model_is_as_good_as_the_epoch_that_begins_with_it() -> None:
    kept = LeastLoss()
    for epoch, loss in enumerate([0.9, 0.5, 0.4, 7.0, 9.0], 1):
        kept.passed(loss, epoch)
        kept.begin(partial(_made, epoch))
    assert kept.mark == (-0.4, 2)
    assert {name: model[0][0, 0] for name, model in kept.models.items()} == {"best": 2, "epoch_before": 5}
    again = LeastLoss()
    again.restore(kept.models, kept.mark)
    again.passed(0.1, 6)
    assert again.mark == (-0.1, 5)


def _made(epoch: int) -> tuple[HostArray, None]:
    return np.full((1, 1), epoch), None


def test_a_model_is_asked_for_once_an_epoch_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    finish = EigenPro.finish

    def counted(*arguments: Any) -> HostArray:
        calls.append(1)
        return finish(*arguments)

    monkeypatch.setattr(EigenPro, "finish", counted)
    _fit("eigenpro, landmarks", spoil=lambda solver: solver).results(1)
    assert len(calls) == 6

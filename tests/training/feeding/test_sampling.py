"""Sampling changes how the objective is approached, and never the objective."""

from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.cli.main import main
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import Logistic, Squared
from daskkern.solvers import EigenPro, NystromSGD
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sampling import learn_sampling
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.feeding.targets import learn_targets
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare

N = 400


@pytest.fixture(name="X")
def features() -> HostArray:
    return np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)


@pytest.fixture
def codes(X: HostArray) -> HostArray:
    """One row in about twenty is of class 1, and one in forty of class 2."""
    return np.where(X[:, 0] > 1.6, 1, np.where(X[:, 1] > 1.9, 2, 0))


def _settings(sampling: str, **changes: object) -> FitSettings:
    given = {"kernel": Gaussian(1.0), "loss": Logistic(), "basis": Landmarks(40), "solver": EigenPro(), **changes}
    return FitSettings(**given, sampling=sampling)  # type: ignore[arg-type]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sampling", ["weighted", "balanced"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_what_rows_count_over_many_epochs_is_their_weight(
    sampling: str, class_weight: str | None, X: HostArray, codes: HostArray
) -> None:
    weight = np.random.default_rng(1).uniform(0.2, 4, N)
    rows = ArrayRows(X, codes, weight=weight, classes=(0, 1, 2), chunk_rows=64)
    settings = _settings(sampling, class_weight=class_weight)
    targets = learn_targets(rows, settings)
    found = learn_sampling(rows, settings, targets)
    assert found is not None
    counted, epochs = np.zeros(N), 300
    shares = np.zeros(3)
    for epoch in range(epochs):
        drawn = found.rows(rows, epoch)
        block = drawn.read(0, N, Fields.y | Fields.weight)
        weights = found.weight(block)
        np.add.at(counted, drawn.originals(np.arange(N)), 1.0 if weights is None else weights[:, 0])
        shares += np.bincount(block.y, minlength=3) / epochs
    expected = targets.weight(rows.read(0, N))
    assert expected is not None
    np.testing.assert_allclose(counted / epochs, expected[:, 0], rtol=0.2, atol=0.05)
    if sampling == "balanced":
        np.testing.assert_allclose(shares, N / 3, atol=1)


def _objective(model: KernelRegressor, X: HostArray, y: HostArray, weight: HostArray) -> float:
    Z, a = model.landmarks_, model.dual_coef_
    kernel = Gaussian(1.0)
    norm = float((a.T @ kernel.block(Z, kernel.points(Z, kernel.placement_for(Z))) @ a).sum())
    return float((weight * 0.5 * (y - model.predict(X)) ** 2).mean() / weight.mean() + 0.5 * 1e-2 * norm)


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("solver", "epochs"), [("eigenpro", 25), (NystromSGD(mode="streamed"), 50)])
def test_weighted_sampling_reaches_the_same_minimum(solver: object, epochs: int, X: HostArray) -> None:
    rng = np.random.default_rng(2)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=N)
    weight = np.where(rng.uniform(size=N) < 0.05, 40.0, 1.0)
    values = {}
    for sampling in ("uniform", "weighted"):
        model = KernelRegressor(
            kernel=Gaussian(1.0), basis=Landmarks(60), alpha=1e-2, solver=solver, max_epochs=epochs, batch_size=20,
            sampling=sampling, fit_intercept=False,
        ).fit(X, y, weight)  # fmt: skip
        values[sampling] = _objective(model, X, y, weight)
    assert values["weighted"] <= 1.02 * values["uniform"]


def _source(X: HostArray, codes: HostArray) -> ArraySource:
    info = SourceInfo(N, X.shape[1], "classification", (0, 1, 2), Scaling(), None, 1, True, None)
    return ArraySource(X, codes, None, info)


def test_heavy_rows_do_not_force_small_steps(X: HostArray, codes: HostArray) -> None:
    source = _source(X, codes)
    betas = {
        sampling: prepare(source, _settings(sampling, class_weight="balanced"), held_out=False).state.beta
        for sampling in ("uniform", "weighted", "balanced")
    }
    assert betas["weighted"] < betas["uniform"] / 4
    assert betas["balanced"] == pytest.approx(betas["weighted"], rel=0.2)


def test_nothing_is_kept_of_batches_that_differ(X: HostArray, codes: HostArray) -> None:
    plans = [
        upper_bound_plan(_source(X, codes), _settings(sampling, class_weight="balanced"), 1, 1, 1 << 33)
        for sampling in ("uniform", "weighted")
    ]
    assert plans[0].kept
    assert plans[0].keeps_rows
    assert not plans[1].kept_wanted
    assert not plans[1].keeps_rows


@pytest.mark.repeated
@pytest.mark.cluster
def test_draws_do_not_depend_on_the_number_of_workers(X: HostArray, codes: HostArray, client2: Client) -> None:
    how = {"kernel": Gaussian(1.0), "basis": Landmarks(50), "max_epochs": 3, "batch_size": 25, "sampling": "balanced"}
    alone = KernelClassifier(**how).fit(X, codes)
    theirs = KernelClassifier(**how, client=client2).fit(X, codes)
    assert [epoch.loss for epoch in theirs.history_] == pytest.approx([e.loss for e in alone.history_], rel=1e-3)
    np.testing.assert_allclose(theirs.decision_function(X), alone.decision_function(X), rtol=1e-2, atol=1e-2)
    assert alone.score(X, codes) > 0.9


def test_what_has_no_meaning_is_refused(
    X: HostArray, codes: HostArray, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    y = X[:, 0].astype(float)
    with pytest.raises(SpecError, match="expected one of uniform, fresh, fixed, independent, weighted"):
        _settings("often")
    with pytest.raises(SpecError, match="all rows as centres"):
        _settings("weighted", basis=AllRows())
    with pytest.raises(SpecError, match="all rows weigh the same; give class_weight"):
        KernelClassifier(basis=Landmarks(20), sampling="weighted").fit(X, codes)
    with pytest.raises(SpecError, match="regression task, which has no classes; use 'weighted'"):
        KernelRegressor(basis=Landmarks(20), sampling="balanced").fit(X, y)
    with pytest.raises(SpecError, match="choose mode 'streamed'"):
        upper_bound_plan(
            _source(X, codes),
            _settings("balanced", loss=Squared(), solver=NystromSGD(mode="stored")), 1, 1, 1 << 33,
        )  # fmt: skip
    np.savez(tmp_path / "d.npz", X=X, y=codes)
    with pytest.raises(SystemExit):
        main(["ingest", str(tmp_path / "d.npz"), "--out", str(tmp_path / "s")])
    for words, code in ((["--sampling", "balanced"], 0), (["--sampling", "weighted"], 2)):
        with pytest.raises(SystemExit) as end:
            main(["fit", str(tmp_path / "s"), "--out", str(tmp_path / f"m{code}"), "--landmarks", "20", "--kernel",
                  "gaussian:1", "--workers", "0", "--epochs", "1", *words])  # fmt: skip
        assert end.value.code == code
    assert "all rows weigh the same" in capfd.readouterr().err

"""The multi-class hinge with costs of errors: its bounds, its fits, its files, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_classification

import daskkern
from daskkern import KernelClassifier
from daskkern.basis import AllRows, Landmarks, RandomFeatures
from daskkern.cli.main import main
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import MulticlassHinge, parse_loss
from daskkern.solvers import SDCA, SGD, EigenPro, Pegasos, Solver
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, toy_source

COSTS = [[0, 1, 10], [1, 0, 1], [1, 1, 0]]
SPEC = "multiclass_hinge:0,1,10/1,0,1/1,1,0"
NAMES = np.array(["benign", "doubtful", "malign"])
X, codes = make_classification(900, 6, n_informative=4, n_classes=3, flip_y=0.15, class_sep=0.7, random_state=0)
X, y = X.astype(np.float32), NAMES[codes]


def _classifier(loss: object = SPEC, **more: object) -> KernelClassifier:
    return KernelClassifier("gaussian:median", loss=loss, **{"max_epochs": 20, "alpha": 1e-3, "device": "cpu", **more})


def _mean_cost(model: KernelClassifier) -> float:
    predicted = np.searchsorted(NAMES, model.predict(X[600:]))
    return float(np.array(COSTS)[codes[600:], predicted].mean())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_the_loss_is_at_least_the_cost_of_the_predicted_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0, 5, (4, 4)) * (1 - np.eye(4))
    f, own = 3 * rng.standard_normal((20, 4)), rng.integers(0, 4, 20)
    loss = MulticlassHinge(costs)
    assert (loss.value(f, np.eye(4)[own]) >= costs[own, f.argmax(axis=1)] - 1e-12).all()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1 << 30), dtype=st.sampled_from(["float32", "float64"]))
def test_costs_of_0_and_1_are_the_plain_loss_to_the_bit(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    f, y = 3 * rng.standard_normal((20, 4)).astype(dtype), np.eye(4, dtype=dtype)[rng.integers(0, 4, 20)]
    u, Q = -MulticlassHinge().gradient(f[::-1], y), rng.uniform(0.1, 10, (20, 1))
    plain, costly = MulticlassHinge(), MulticlassHinge(1 - np.eye(4))
    np.testing.assert_array_equal(costly.value(f, y), plain.value(f, y))
    np.testing.assert_array_equal(costly.gradient(f, y), plain.gradient(f, y))
    np.testing.assert_array_equal(costly.dual_step(f, u, y, Q), plain.dual_step(f, u, y, Q))


def test_costs_come_from_lists_arrays_frames_and_words() -> None:
    table = np.array(COSTS)
    found = [MulticlassHinge(costs) for costs in (COSTS, table, pd.DataFrame(table), parse_loss(SPEC).costs)]
    assert {loss.spec() for loss in found} == {SPEC}
    assert len(set(found)) == 1
    assert MulticlassHinge().spec() == "multiclass_hinge"
    assert parse_loss(MulticlassHinge([[0, 0.1], [1e-7, 0]]).spec()).costs == ((0, 0.1), (1e-7, 0))


@pytest.mark.parametrize("costs", ["high", 3, [[0, 1], [1]], [["a", "b"], ["c", "d"]], [[[0]]], []])
def test_what_is_no_table_is_refused(costs: object) -> None:
    with pytest.raises(SpecError, match=r"got costs .* for the multiclass_hinge loss; give a square table"):
        MulticlassHinge(costs)


@pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (Landmarks(100), EigenPro()),
        (AllRows(), Pegasos()),
        (AllRows(), Pegasos(project=True)),
        (AllRows(), SDCA()),
        (RandomFeatures(200), SGD("inverse")),
        (RandomFeatures(200), "amm"),
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_a_fit_with_costs_makes_fewer_costly_errors(basis: object, solver: object) -> None:
    plain = _classifier("multiclass_hinge", basis=basis, solver=solver).fit(X[:600], y[:600])
    costly = _classifier(basis=basis, solver=solver).fit(X[:600], y[:600])
    assert _mean_cost(costly) < 0.9 * _mean_cost(plain)


def test_a_fit_with_costs_is_the_same_model_after_its_file_a_clone_and_a_checkpoint(tmp_path: Path) -> None:
    model = _classifier(MulticlassHinge(COSTS), basis=Landmarks(100), max_epochs=4).fit(X, y)
    assert clone(model).loss == MulticlassHinge(COSTS)
    assert clone(model).set_params(loss__costs=1 - np.eye(3)).loss == MulticlassHinge(1 - np.eye(3))
    model.save(tmp_path / "m.zarr")
    light = daskkern.load(tmp_path / "m.zarr")
    assert light.loss == SPEC
    np.testing.assert_array_equal(light.predict(X), model.predict(X))
    np.testing.assert_array_equal(light.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-5)
    place = str(tmp_path / "checkpoint.zarr")
    half = _classifier(basis=Landmarks(100), max_epochs=2, checkpoint=place).fit(X, y)
    half.set_params(max_epochs=4, warm_start=True).fit(X, y)
    np.testing.assert_array_equal(half.dual_coef_, model.dual_coef_)
    other = _classifier("multiclass_hinge:0,1,2/1,0,1/1,1,0", basis=Landmarks(100), checkpoint=place, warm_start=True)
    with pytest.raises(Exception, match="loss"):
        other.fit(X, y)


@pytest.mark.parametrize(("basis", "solver"), [(Landmarks(40), EigenPro()), (RandomFeatures(60), SDCA())], ids=str)
def test_any_number_of_ranks_makes_the_same_model(basis: object, solver: Solver) -> None:
    loss = MulticlassHinge([[0, 1, 10], [0.5, 0, 1], [1, 3, 0]])
    plain = FitSettings(Gaussian(2.0), loss, basis, solver, 1e-3, 3, batch_size=32, dtype="float64", device="cpu")
    fit = Fit.of(toy_source(weighted=True), plain)
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-9 * np.abs(alone).max())


def test_costs_of_other_classes_are_refused_with_the_classes() -> None:
    with pytest.raises(SpecError, match=r"got costs of 2 classes .* have 3: benign, doubtful, malign; give a row"):
        _classifier("multiclass_hinge:0,1/1,0").fit(X, y)


def test_early_stopping_watches_the_loss_where_errors_have_costs() -> None:
    assert EarlyStopping().watches_loss(MulticlassHinge(COSTS))
    assert not EarlyStopping().watches_loss(MulticlassHinge())
    assert not EarlyStopping(monitor="score").watches_loss(MulticlassHinge(COSTS))


def _run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


def test_costs_are_given_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "rows.npz", X=X[:200], y=codes[:200])
    assert _run(capsys, "ingest", tmp_path / "rows.npz", "--out", tmp_path / "s")[0] == 0
    fit = ("fit", tmp_path / "s", "--workers", 0, "--kernel", "gaussian:2", "--epochs", 2, "--device", "cpu")
    assert _run(capsys, *fit, "--loss", SPEC, "--out", tmp_path / "m")[0] == 0
    assert json.loads(_run(capsys, "info", tmp_path / "m", "--json")[1])["loss"] == SPEC
    for wrong, sentence in (("costs.csv", "paste -sd/ costs.csv"), ("0,1/1,0", "got costs of 2 classes")):
        code, said = _run(capsys, *fit, "--loss", f"multiclass_hinge:{wrong}", "--out", tmp_path / "other")
        assert code in (1, 2)
        assert sentence in said.splitlines()[-1]
        assert not (tmp_path / "other").exists()

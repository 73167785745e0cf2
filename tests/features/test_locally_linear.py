"""A linear model around each anchor: its columns and its scores are the sums that the paper writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Linear, LocallyLinear
from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.cli.main import main
from daskkern.cli.options.basis_options import basis_of
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError, SpecError
from daskkern.kernels import LocalFeatures, from_spec
from daskkern.losses import Hinge, Logistic, Squared
from daskkern.solvers import SDCA, SGD, Pegasos, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_by_columns import rank_items
from daskkern.training.planning.planner import summarise
from daskkern.training.planning.sizes_of_fits import sizes_of
from tests.support.fits import Fit, toy_settings, toy_source

X = generator(0, 1).standard_normal((40, 3))
ANCHORS = generator(0, 2).standard_normal((7, 3))


def _code(x: HostArray, anchors: HostArray, nearest: int) -> HostArray:
    distances = [sum((x[j] - v[j]) ** 2 for j in range(len(x))) ** 0.5 for v in anchors]
    code = np.zeros(len(anchors))
    chosen = sorted(range(len(anchors)), key=lambda a: distances[a])[:nearest]
    for a in chosen:
        code[a] = (1 / distances[a]) / sum(1 / distances[b] for b in chosen)
    return code


def _columns(x: HostArray, anchors: HostArray, nearest: int) -> HostArray:
    code = _code(x, anchors, nearest)
    return np.array([code[a] * feature for a in range(len(anchors)) for feature in (*x, 1.0)])


def _crossed(n: int, number: int) -> tuple[HostArray, HostArray]:
    """Return rows of two classes, in opposite quadrants each."""
    rows = generator(0, number).standard_normal((n, 2))
    return rows, (rows[:, 0] * rows[:, 1] > 0).astype(int)


def _run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


@pytest.mark.parametrize("nearest", [1, 3, 7])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_columns_are_products_of_the_code_and_the_features(nearest: int, sparse: bool) -> None:
    kernel, rows = LocalFeatures(ANCHORS, nearest), X * (X > -0.5)
    expected = np.array([_columns(x, ANCHORS, nearest) for x in rows])
    given = scipy.sparse.csr_matrix(rows) if sparse else rows
    np.testing.assert_allclose(kernel.block(given, kernel.numbers.astype(float)), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel.code(given).sum(axis=1), 1, rtol=1e-12)
    some = np.array([25, 3, 7, 8, 0])
    found = kernel.block(given, kernel.numbers[some].astype(np.float64))
    np.testing.assert_allclose(found, expected[:, some], rtol=1e-10, atol=1e-12)


def test_a_row_that_is_an_anchor_has_that_one_alone() -> None:
    far = 1e3 + ANCHORS
    np.testing.assert_array_equal(LocalFeatures(far, 4).code(far), np.eye(7))
    twice = np.concatenate([ANCHORS, ANCHORS[:1]])
    expected = np.zeros((1, 8))
    expected[0, [0, 7]] = 0.5
    np.testing.assert_array_equal(LocalFeatures(twice, 4).code(ANCHORS[:1]), expected)


def test_the_columns_of_a_saved_model_are_the_same_bits() -> None:
    kernel = LocalFeatures(ANCHORS, 3)
    again = from_spec(json.loads(json.dumps(kernel.spec())))
    points = kernel.numbers.astype(float)
    np.testing.assert_array_equal(again.block(X, points), kernel.block(X, points))


@pytest.mark.parametrize("solver", ["sdca", "pegasos"])
def test_predictions_are_the_sums_of_the_paper_also_after_saving(solver: str, tmp_path: Path) -> None:
    rows, y = _crossed(120, 3)
    settings: dict[str, Any] = {"alpha": 1e-3, "max_epochs": 8, "dtype": "float64", "calibrate": False}
    model = KernelClassifier(basis=LocallyLinear(9, 4, "uniform"), solver=solver, loss="hinge", scale=None, **settings)
    model.fit(rows, y)
    model.save(tmp_path / "m.zarr")
    loaded = daskkern.load(tmp_path / "m.zarr")
    kernel = loaded.kernel
    assert isinstance(kernel, LocalFeatures)
    at = {tuple(number): j for j, number in enumerate(loaded.points.astype(int).tolist())}
    coef = np.array([loaded.coef[at[a, j], 0] if (a, j) in at else 0 for a in range(9) for j in range(3)])
    others, _ = _crossed(50, 4)
    expected = [float(_columns(x, kernel.anchors, 4) @ coef) for x in others]
    np.testing.assert_allclose(loaded.decision_function(others).ravel(), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(loaded.decision_function(others), model.decision_function(others))


@pytest.mark.parametrize(("loss", "solver"), [("hinge", "sdca"), ("squared", "direct")])
def test_with_one_anchor_it_is_a_linear_model(loss: str, solver: str) -> None:
    y = X @ [1.0, -2.0, 0.5] + 0.3 + 0.5 * generator(0, 5).standard_normal(40) > 0
    settings: dict[str, Any] = {"loss": loss, "solver": solver, "alpha": 1e-2, "dtype": "float64", "calibrate": False}
    settings |= {"max_epochs": 1 if solver == "direct" else 10, "batch_size": 8}
    local = KernelClassifier(basis=LocallyLinear(1), **settings).fit(X, y)
    linear = KernelClassifier(basis=Linear(), **settings).fit(X, y)
    np.testing.assert_allclose(local.decision_function(X), linear.decision_function(X), rtol=1e-8, atol=1e-9)


def test_it_separates_what_no_hyperplane_does() -> None:
    (rows, y), (others, there) = _crossed(300, 7), _crossed(300, 8)
    settings: dict[str, Any] = {"loss": "hinge", "solver": "sdca", "alpha": 1e-4, "max_epochs": 15}
    linear = KernelClassifier(basis=Linear(), **settings).fit(rows, y).score(others, there)
    local = KernelClassifier(basis=LocallyLinear(20), **settings).fit(rows, y).score(others, there)
    assert linear < 0.65
    assert local > 0.93


def test_it_regresses_over_sparse_rows() -> None:
    rows = generator(0, 9).standard_normal((300, 3))
    rows *= rows > 0
    target = np.abs(rows[:, 0] - rows[:, 1])
    shared: dict[str, Any] = {"loss": "squared", "solver": "direct", "alpha": 1e-5, "max_epochs": 1}
    model = KernelRegressor(basis=LocallyLinear(15, 4, "uniform"), scale=None, **shared).fit(
        scipy.sparse.csr_matrix(rows), target
    )
    linear = KernelRegressor(basis=Linear(), scale=None, **shared).fit(rows, target)
    assert model.score(rows, target) > 0.9 > 0.7 > linear.score(rows, target)
    np.testing.assert_allclose(model.predict(rows), model.predict(scipy.sparse.csr_matrix(rows)), atol=1e-4)


@pytest.mark.parametrize("solver", [SDCA(), Pegasos(), SGD()], ids=lambda one: one.name)
def test_two_ranks_find_the_model_of_one(solver: Solver[Any]) -> None:
    loss = Logistic() if isinstance(solver, SGD) else Hinge()
    settings = toy_settings(LocallyLinear(10, 3, "uniform"), solver, loss)
    shared = Fit.of(toy_source(weighted=True), settings)
    alone = shared.scores(shared.results(1))
    results = shared.results(2)
    assert min(result.ids.size for result in results) >= 10
    np.testing.assert_allclose(shared.scores(results), alone, rtol=1e-9, atol=1e-9 * np.abs(alone).max())


def test_the_plan_counts_anchors_and_numbers_of_columns() -> None:
    rows = generator(0, 10).standard_normal((60, 500)).astype(np.float32)
    info = SourceInfo(60, 500, "regression", None, Scaling(), None, 1, True)
    source = ArraySource(rows, np.arange(60.0)[:, None], None, info)
    settings = toy_settings(LocallyLinear(20, selector="uniform"), SGD(), Squared(), "float32")
    fit = Fit.of(source, settings)
    assert fit.prepared.basis.n_columns == 20 * 501 == settings.basis.most_columns(60, 500, lambda: 1)
    items = dict(rank_items(sizes_of(summarise(fit.prepared, settings), source, settings, 1, 1, on_device=False))[0])
    assert items["tables of columns"] == 20 * 500 * 8
    assert items["own columns"] == 20 * 501 * 16


def test_the_command_line_fits_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, y = _crossed(200, 11)
    np.savez(tmp_path / "rows.npz", X=rows, y=y)
    store, model = str(tmp_path / "rows.zarr"), str(tmp_path / "model.zarr")
    daskkern.ingest([str(tmp_path / "rows.npz")], store, task="classification")
    options = ["--basis", "locally_linear", "--landmarks", "12", "--nearest", "4", "--loss", "hinge"]
    options += ["--solver", "sdca", "--alpha", "1e-4", "--workers", "0", "--selector", "uniform"]
    assert _run("fit", store, "--out", model, *options, "--epochs", "5") == 0
    capsys.readouterr()
    assert _run("info", model) == 0
    assert "LocalFeatures(12 anchors of 2 features, nearest=4)" in capsys.readouterr().out
    assert daskkern.load(model).coef.shape == (36, 1)
    assert _run("fit", store, "--out", model + "2", *options, "--kernel", "gaussian:1") == 2
    assert "with the basis locally linear, which uses no kernel" in capsys.readouterr().err


def test_options_say_what_anchors_there_are() -> None:
    assert basis_of({"basis": "locally_linear"}) == LocallyLinear()
    assert basis_of({"nearest": 3}) == LocallyLinear(nearest=3)
    named = {"basis": "locally_linear", "landmarks": "30", "selector": "uniform"}
    assert basis_of(named) == LocallyLinear(30, selector="uniform")
    with pytest.raises(SpecError, match="got --features with the basis locally_linear, which takes --landmarks"):
        basis_of({"basis": "locally_linear", "features": 10})
    with pytest.raises(SpecError, match="got --nearest with the basis landmarks"):
        basis_of({"basis": "landmarks", "nearest": 3})


def test_what_is_not_possible_is_refused() -> None:
    with pytest.raises(SpecError, match="got 0 nearest anchors; give a whole number of at least 1"):
        LocallyLinear(nearest=0)
    with pytest.raises(
        SpecError, match="for anchors, which needs a kernel; choose one of uniform, stratified, k_means"
    ):
        LocallyLinear(selector="rp_cholesky")
    with pytest.raises(SpecError, match="got nearest=8 of 7 anchors"):
        LocalFeatures(ANCHORS, 8)
    with pytest.raises(SpecError, match="expected a finite table"):
        LocalFeatures(np.array([[np.nan]]), 1)
    with pytest.raises(DataError, match="expected an anchor and a feature for each"):
        LocalFeatures(ANCHORS, 2).points(np.array([[0.0, 4.0]]))
    with pytest.raises(SpecError, match=r"got LocallyLinear\(n\) for solver falkon; it needs Landmarks\(n\)"):
        KernelRegressor(basis=LocallyLinear(), solver="falkon").fit(X, X[:, 0])

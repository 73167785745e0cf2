"""The exact support vector machine against LIBSVM: decisions, support vectors, objective, gap, and memory."""

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks, load
from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import EpsilonInsensitive, Hinge, Quantile
from daskkern.solvers import SVM
from daskkern.solvers.support_vectors import decomposition
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.machines import Limits, penalised

GAMMA, KERNEL = 1 / 8, Gaussian(2.0)


def _rows(n: int = 240, seed: int = 0) -> tuple[HostArray, HostArray, HostArray]:
    """Rows, overlapping classes of unlike size, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] * X[:, 1] + 0.7 * rng.normal(size=n) > 0.4).astype(int)
    return X, y, rng.uniform(0.5, 2, n)


def _classifier(solver: SVM | str, alpha: float | str, **others: Any) -> KernelClassifier:
    given = {"loss": "hinge", "basis": AllRows(), "scale": None, "dtype": "float64"} | others
    return KernelClassifier(KERNEL, solver=solver, alpha=alpha, **given)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_two_classes_are_those_of_svc(C: float) -> None:
    X, y, weight = _rows()
    new = _rows(seed=1)[0]
    ours = _classifier(SVM(tol=1e-6), 1 / (C * len(y))).fit(X, y, sample_weight=weight)
    theirs = SVC(C=C, gamma=GAMMA, tol=1e-7).fit(X, y, sample_weight=weight / weight.mean())
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=2e-5 * max(1, C))
    np.testing.assert_array_equal(np.sort(ours.landmark_indices_), np.sort(theirs.support_))
    assert ours.model_.points.shape[0] == len(theirs.support_)


def test_nu_is_that_of_nu_svc() -> None:
    X, y, weight = _rows()
    new = _rows(seed=1)[0]
    ours = _classifier(SVM(tol=1e-7, nu=0.6), 0.0).fit(X, y, sample_weight=weight)
    theirs = NuSVC(nu=0.6, gamma=GAMMA, tol=1e-7).fit(X, y, sample_weight=weight / weight.mean())
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=1e-5)
    np.testing.assert_array_equal(np.sort(ours.landmark_indices_), np.sort(theirs.support_))


@pytest.mark.parametrize("n", [3, 6])
def test_nu_on_very_few_rows_is_that_of_nu_svc(n: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, 2))
    y = np.arange(n) % 2
    ours = _classifier(SVM(tol=1e-6, nu=0.5, max_rounds=200), 0.0).fit(X, y)
    theirs = NuSVC(nu=0.5, gamma=GAMMA, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("nu", "C"), [(0.2, 1.0), (0.7, 10.0)])
def test_nu_of_the_absolute_loss_is_that_of_nu_svr(nu: float, C: float) -> None:
    X, _, weight = _rows()
    y = X[:, 0] * X[:, 1] + 0.3 * np.random.default_rng(1).normal(size=len(X))
    y = (y - np.average(y, weights=weight)) / np.sqrt(np.cov(y, aweights=weight, ddof=0))
    new, solver = _rows(seed=1)[0], SVM(tol=1e-7, nu=nu)
    ours = KernelRegressor(KERNEL, "absolute", AllRows(), solver, 1 / (C * len(y)), dtype="float64", scale=None)
    theirs = NuSVR(nu=nu, C=C, gamma=GAMMA, tol=1e-8).fit(X, y, sample_weight=weight / weight.mean())
    ours.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=1e-5)
    np.testing.assert_array_equal(np.sort(ours.landmark_indices_), np.sort(theirs.support_))
    assert ours.history_.finished is not None
    assert ours.history_.finished.reason == "converged"


@pytest.mark.filterwarnings("error")
def test_nu_takes_the_place_of_the_penalty_and_its_own_objective_is_the_goal() -> None:
    X, _, _ = _rows(150)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
    ours = _classifier(SVM(tol=1e-6, nu=0.3), "auto").fit(X, y)
    assert ours.alpha_ == 0
    scores = [NuSVC(nu=0.3, gamma=GAMMA, tol=1e-7).fit(X, y == c).decision_function(X) for c in range(3)]
    np.testing.assert_allclose(ours.decision_function(X), np.stack(scores, axis=1), atol=1e-3)


def test_a_fit_that_runs_out_of_working_sets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "WORKING_SET", 64)
    X, y, _ = _rows()
    with pytest.warns(ConvergenceWarning, match="tolerance of solver svm; raise solver.max_rounds"):
        _classifier(SVM(tol=1e-6, max_rounds=6), 1e-5).fit(X, y)


def test_regression_is_that_of_svr() -> None:
    X, _, weight = _rows()
    new = _rows(seed=1)[0]
    y = 3 + 2 * np.sin(X[:, 0]) + 0.3 * np.random.default_rng(2).normal(size=len(X))
    ours = KernelRegressor(
        KERNEL, EpsilonInsensitive(0.1), AllRows(), SVM(tol=1e-6), alpha=1 / len(y), scale=None, dtype="float64"
    ).fit(X, y, sample_weight=weight)  # fmt: skip
    mean = np.average(y, weights=weight)
    spread = np.sqrt(np.average((y - mean) ** 2, weights=weight))
    theirs = SVR(gamma=GAMMA, tol=1e-7).fit(X, (y - mean) / spread, sample_weight=weight / weight.mean())
    np.testing.assert_allclose(ours.predict(new), mean + spread * theirs.predict(new), atol=1e-4)
    assert ours.model_.points.shape[0] == len(theirs.support_)


def test_classes_are_one_against_the_rest_on_one_cache() -> None:
    X, _, _ = _rows(150)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
    ours = _classifier(SVM(tol=1e-6), 1 / len(y)).fit(X, y)
    scores = [SVC(gamma=GAMMA, tol=1e-7).fit(X, y == c).decision_function(X) for c in range(3)]
    np.testing.assert_allclose(ours.decision_function(X), np.stack(scores, axis=1), atol=2e-5)


def test_the_history_has_the_duality_gap_and_the_command_line_name_is_svm() -> None:
    X, y, _ = _rows()
    ours = _classifier("svm", 1 / len(y), dtype="float32").fit(X, y)
    assert ours.history_.finished is not None
    assert ours.history_.finished.reason == "converged"
    assert 0 <= ours.history_[-1].optimality <= 1e-3
    signs = np.where(y == 1, 1, -1)
    loss = np.maximum(0, 1 - signs * ours.decision_function(X)).mean()
    assert ours.history_[-1].loss == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("with_offset", [True, False])
def test_little_memory_gives_the_same_machine_in_fewer_bytes(
    with_offset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Working sets of 64 of 600 rows, of which 80 are kept: rows are left out, and all are checked at the end."""
    X, y, weight = _rows(600)
    signs = np.where(y == 1, 1.0, -1.0)[:, None]
    boxes = Hinge().dual_boxes(signs)
    monkeypatch.setattr(decomposition, "WORKING_SET", 64)
    points = KERNEL.placement_for(X)
    found = []
    for most in (1 << 30, 80 * 600 * 8):
        rows = KernelRows(KERNEL, X, lambda Z: KERNEL.points(Z, points), "float64", most, 64)
        machine = penalised(boxes, weight, 1 / (10 * len(y)), with_offset).solved(rows, Limits(1e-6, 10_000))
        found.append(machine)
        assert rows.held_bytes <= max(most, 64 * 600 * 8)
        assert rows.held_bytes == 600 * 600 * 8 or most < 1 << 30
        assert machine.gap <= 1e-6
        assert machine.violation <= 1e-6
    np.testing.assert_allclose(found[1].coef, found[0].coef, atol=2e-3)
    np.testing.assert_array_equal(found[1].coef != 0, found[0].coef != 0)
    assert found[1].offset == pytest.approx(found[0].offset, abs=1e-5)


def test_quantiles_have_their_shares() -> None:
    X, _, _ = _rows()
    y = X[:, 0] + (1 + 0.5 * np.abs(X[:, 1])) * np.random.default_rng(2).normal(size=len(X))
    ours = KernelRegressor(KERNEL, Quantile((0.2, 0.8)), AllRows(), "svm", alpha=0.1, dtype="float64").fit(X, y)
    below = (y[:, None] < ours.predict(X)).mean(axis=0)
    np.testing.assert_allclose(below, [0.2, 0.8], atol=0.02)  # the offset has no penalty


def test_a_model_is_saved_without_the_other_rows(tmp_path: Any) -> None:
    X, y, _ = _rows()
    ours = _classifier("svm", 1 / len(y)).fit(X, y)
    ours.save(tmp_path / "model.zarr")
    loaded = load(tmp_path / "model.zarr")
    assert loaded.points.shape[0] == len(ours.landmark_indices_) < len(y)
    np.testing.assert_allclose(loaded.decision_function(X), ours.decision_function(X), atol=1e-12)


@pytest.mark.parametrize(
    ("solver", "alpha", "others", "message"),
    [
        ("svm", 0.0, {}, "needs alpha above 0"),
        (SVM(nu=0.5), 0.1, {}, "give alpha=0 with nu"),
        (SVM(nu=0.5), 0.0, {"fit_intercept": False}, "fit_intercept=True"),
        (SVM(nu=0.5), 0.0, {"loss": "smoothed_hinge:0.5"}, "choose the loss"),
        ("svm", 0.1, {"loss": "logistic"}, "choose the loss 'hinge', or one of"),
        ("svm", 0.1, {"basis": Landmarks(20)}, "svm"),
    ],
)
def test_what_it_cannot_fit_is_refused(solver: Any, alpha: float, others: dict[str, Any], message: str) -> None:
    X, y, _ = _rows(60)
    with pytest.raises(SpecError, match=message):
        _classifier(solver, alpha, **others).fit(X, y)


@pytest.mark.parametrize(
    ("loss", "alpha", "message"), [("absolute", 0.0, "alpha above 0"), ("quantile:0.3", 0.1, "nu")]
)
def test_a_nu_without_a_machine_is_refused(loss: str, alpha: float, message: str) -> None:
    X, _, _ = _rows(60)
    with pytest.raises(SpecError, match=message):
        KernelRegressor(KERNEL, loss, AllRows(), SVM(nu=0.5), alpha, dtype="float64").fit(X, X[:, 0])


def test_a_nu_beyond_the_smaller_class_is_refused() -> None:
    X, y, _ = _rows(60)
    with pytest.raises(DataError, match="at most"):
        _classifier(SVM(nu=0.95), 0.0).fit(X, y)

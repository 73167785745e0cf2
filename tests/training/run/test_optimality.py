"""How far the objective can still fall at the end of a fit, and what is said of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.kernels import Laplacian, Polynomial
from daskkern.losses import Squared
from daskkern.solvers import SGD, SVM, EigenPro, Falkon, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.optimality import Optimality, measure_optimality
from daskkern.training.run.optimality_notes import is_far, is_near, optimality_note
from daskkern.training.run.settings import FitSettings
from tests.nasty.ways import DATA_SETS
from tests.support.fits import Fit

N, D, ALPHA = 200, 4, 1e-3
BASES = [AllRows(), Landmarks(60), NystromFeatures(60), RandomFeatures(80), Linear()]


def _rows(n: int = N, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def _fit(solver: Solver[Any], basis: BasisSpec, epochs: int, n: int = N, alpha: float = ALPHA) -> Fit:
    X, y = _rows(n)
    source = ArraySource(X, y[:, None], None, SourceInfo(n, D, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(
        Laplacian(3.0), Squared(), basis, solver, alpha=alpha, max_epochs=epochs, dtype="float64", device="cpu"
    )
    return Fit.of(source, settings)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Optimality]:
    """What was measured at the ends of fits, by each rank."""
    found: list[Optimality] = []
    known = measure_optimality

    def listen(*arguments: Any) -> Optimality | None:
        one = known(*arguments)
        if one is not None:
            found.append(one)
        return one

    monkeypatch.setattr("daskkern.training.run.optimality_notes.measure_optimality", listen)
    return found


def test_with_all_rows_and_centres_the_fall_is_exact(measured: list[Optimality]) -> None:
    fit = _fit(SGD(), AllRows(), 6)
    results = fit.results(1)
    X, y = _rows()
    y = ((y - y.mean()) / y.std())[:, None]
    K, a = Laplacian(3.0).block(X, X), np.zeros((N, 1))
    a[results[0].ids] = results[0].coef
    best = np.linalg.solve(K + N * ALPHA * np.eye(N), y)

    def objective(a: HostArray) -> float:
        return float(((K @ a - y) ** 2).sum() / (2 * N) + ALPHA / 2 * (a * (K @ a)).sum())

    assert measured[0].is_exact
    assert measured[0].fall == pytest.approx(objective(a) - objective(best), rel=1e-6)
    assert measured[0].loss == pytest.approx(float(((K @ a - y) ** 2).mean()) / 2, rel=1e-6)


@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("basis", BASES, ids=lambda basis: basis.name)
def test_any_number_of_ranks_measures_the_same(basis: BasisSpec, measured: list[Optimality]) -> None:
    fit = _fit(EigenPro(), basis, 2)
    notes = {result.note for ranks in (1, 2) for result in fit.results(ranks)}
    assert len(measured) == 3
    assert len(notes) == 1
    for one in measured:
        assert one.fall == pytest.approx(measured[0].fall, rel=1e-6)
        assert one.sure == pytest.approx(measured[0].sure, rel=1e-6)


@pytest.mark.parametrize("basis", BASES[:3], ids=lambda basis: basis.name)
def test_a_fit_of_two_epochs_says_that_it_has_not_converged(basis: BasisSpec) -> None:
    note = _fit(EigenPro(step_scale=0.01), basis, 3).results(1)[0].note
    assert note.startswith("the fit has not converged: the objective on 200 training rows can still fall by")
    assert note.endswith("raise max_epochs, or choose a solver that needs fewer epochs")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", BASES, ids=lambda basis: basis.name)
def test_sparse_rows_are_measured_like_dense_ones(basis: BasisSpec, measured: list[Optimality]) -> None:
    X = scipy.sparse.random_array((N, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    y = np.asarray(X.sum(axis=1)).ravel()
    settings: dict[str, Any] = {"alpha": ALPHA, "max_epochs": 2, "scale": None, "dtype": "float64", "device": "cpu"}
    for rows in (X, X.toarray()):
        KernelRegressor(Laplacian(3.0), basis=basis, solver="eigenpro", **settings).fit(rows, y)
    assert measured[0].fall == pytest.approx(measured[1].fall, rel=1e-6)
    assert measured[0].fall > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("basis", BASES[:2], ids=lambda basis: basis.name)
def test_a_converged_fit_is_near(basis: BasisSpec, measured: list[Optimality]) -> None:
    results = _fit(EigenPro(), basis, 80).results(1)
    assert results[0].note == ""
    assert all(is_near(one) for one in measured)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_of_more_rows_than_are_held_one_half_tells_of_the_other(alpha: float, measured: list[Optimality]) -> None:
    assert _fit(Falkon(), Landmarks(100), 20, n=3000, alpha=alpha).results(1)[0].note == ""
    slow = _fit(EigenPro(step_scale=0.01), Landmarks(100), 2, n=3000, alpha=alpha)
    assert "can still fall by" in slow.results(1)[0].note
    assert not any(one.is_exact for one in measured)
    assert measured[0].sure < 0 < measured[1].sure < measured[1].loss


def test_an_exact_measure_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.run.optimality_notes.convergence_note", lambda *_: "the losses still fell")
    assert _fit(EigenPro(), AllRows(), 80).results(1)[0].note == ""
    assert _fit(EigenPro(step_scale=0.01), AllRows(), 4).results(1)[0].note == "the losses still fell"


def test_a_fit_that_stops_early_is_not_measured(measured: list[Optimality]) -> None:
    X, y = _rows()
    KernelRegressor(solver="eigenpro", early_stopping=True, max_epochs=3, scale=None).fit(X, y)
    assert not measured


_FAR = Optimality(1.0, 0.2, 0.15, 0.1, -1.0, 0.2, is_exact=True, n_rows=100)


@pytest.mark.parametrize(
    ("changes", "far", "near"),
    [
        ({}, True, False),
        ({"fall": 0.01}, False, False),
        ({"fall": 0.005}, False, True),
        ({"fall": 0.01, "moved": 0.5}, True, False),
        ({"fall": 0.003, "moved": 0.5, "bulk": 1e-3}, False, False),  # a large part of next to nothing
        ({"fall": 0.0005, "moved": 0.5, "bulk": 1e-3}, False, True),
        ({"is_exact": False}, False, False),
        ({"is_exact": False, "sure": 0.02}, True, False),
        ({"fall": 0.0, "sure": 0.02}, True, False),
        ({"several": True, "fall": 0.09}, False, False),
        ({"several": True, "fall": 0.11}, True, False),
    ],
)
def test_far_and_near(changes: dict[str, Any], far: bool, near: bool) -> None:
    found = replace(_FAR, **changes)
    assert is_far(found) == far
    assert is_near(found) == near


def test_labels_hardly_change_while_the_loss_falls_by_little_of_that_of_zero() -> None:
    found = replace(_FAR, is_exact=False, loss=0.01, bulk=0.01, sure=0.003)
    assert is_far(found)
    assert not is_far(found, labelled=True)
    assert is_far(replace(found, sure=0.005), labelled=True)


@pytest.mark.parametrize(
    ("found", "reason", "digits", "says"),
    [
        (_FAR, "max_epochs", "", "can still fall by 0.1 from a loss of 0.2; raise max_epochs"),
        (_FAR, "max_seconds", "", "; raise max_seconds"),
        (_FAR, "converged", "", "the rounding of float32 is in the way"),
        (_FAR, "converged", "all are 1; do this", "too few digits: all are 1; do this, or take dtype float64"),
        (replace(_FAR, several=True), "max_epochs", "", "a model with one score for each class has 0.1; raise max"),
        (replace(_FAR, is_exact=False, sure=0.05), "max_epochs", "", "fall by 0.05 from"),
    ],
)
def test_the_sentence_names_the_cause(found: Optimality, reason: str, digits: str, says: str) -> None:
    assert says in optimality_note(found, reason, digits, "float32")


def test_kernel_values_without_digits_are_named_as_the_cause() -> None:
    X, y = _rows()
    X = np.hstack([X, np.full((N, 1), 1e4)])
    model = KernelRegressor(
        kernel=Polynomial(2, gamma=0.1), solver="sgd", basis=NystromFeatures(N), alpha=1e-3, max_epochs=20, scale=None
    )
    with pytest.warns(
        UserWarning, match="float32 holds too few digits: the median kernel value .* centre the features"
    ):
        model.fit(X, y)


def test_several_hyperplanes_that_are_worse_than_one_are_told() -> None:
    X, y = _rows(6)
    model = KernelClassifier(
        kernel=Laplacian(3.0),
        solver="amm",
        loss="multiclass_hinge",
        basis=NystromFeatures(6),
        alpha=1e-3,
        max_epochs=20,
    )
    with pytest.warns(UserWarning, match="where a model with one score for each class has"):
        model.fit(X, (y > 0).astype(int))


def test_landmarks_whose_products_go_beyond_float32_are_refused() -> None:
    X, y = _rows()
    X[3] = 1e8
    model = KernelRegressor(
        kernel=Polynomial(2, gamma=1.0), solver="falkon", basis=Landmarks(N), alpha=1e-3, scale=None
    )
    with pytest.raises(DataError, match=r"go beyond float32, which ends at 3\.4e"):
        model.fit(X, y)


def test_features_that_are_drawn_again_are_measured_by_their_kernel(measured: list[Optimality]) -> None:
    heavy = DATA_SETS["heavy weights"].problem("classification")  # whose steps leave light rows as they were
    model = KernelClassifier(
        Laplacian(3.0), basis=DoublyStochastic(), solver="doubly_sgd", alpha=ALPHA, max_epochs=20, scale=None,
        device="cpu", random_state=0,
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match="the fit has not converged: the objective on 250 training rows can"):
        model.fit(heavy.X, heavy.y, sample_weight=heavy.weight)
    assert len(measured) == 1
    assert not measured[0].is_exact
    assert measured[0].sure > 0.1 * measured[0].loss


@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive:0.1"])
def test_nothing_is_measured_where_the_duality_gap_says_enough(loss: str, measured: list[Optimality]) -> None:
    X, y = _rows()
    estimator, targets = (KernelClassifier, y > 0) if loss == "hinge" else (KernelRegressor, y)
    for tol, most in ((1e-3, 0), (3.0, 1)):
        model = estimator(Laplacian(3.0), loss, AllRows(), SVM(tol=tol), 1 / N, device="cpu").fit(X, targets)
        assert model.history_.finished.reason == "converged"
        assert len(measured) == most


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_solution_that_time_has_ended_has_not_converged() -> None:
    X, y = _rows(600)
    hard = SVM(tol=1e-12)
    model = KernelClassifier(Laplacian(0.5), "hinge", AllRows(), hard, 1e-9, dtype="float64", device="cpu")
    model.set_params(max_seconds=1e-3).fit(X, y + X[:, 3] ** 3 > 0)
    assert model.stop_reason_ == "max_seconds"
    assert "converged: the rounding" not in model.history_.finished.note

"""A support vector machine that is stopped within its solution has the model so far, its gap, and can go on."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.events import BatchFinished, Event, FitResumed
from daskkern.kernels import Gaussian
from daskkern.solvers import SVM
from daskkern.solvers.support_vectors import decomposition

N, ALPHA = 500, 1e-5
KERNEL = Gaussian(2.0)


@pytest.fixture(autouse=True)
def small_working_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Working sets of 64 rows, so that few rows take many of them."""
    monkeypatch.setattr(decomposition, "WORKING_SET", 64)


def _rows(n_classes: int = 2) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    noisy = X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=N)
    return X, np.digitize(noisy, [-0.4, 0.4][: n_classes - 1])


class _Listener:
    """Notes the steps of solutions, and presses Ctrl-C after some."""

    def __init__(self, press_after: int = 0) -> None:
        self.steps: list[BatchFinished] = []
        self.resumed: list[FitResumed] = []
        self._press_after = press_after

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitResumed):
            self.resumed.append(event)
        if isinstance(event, BatchFinished) and event.batch > event.n_batches:
            self.steps.append(event)
            if len(self.steps) == self._press_after:
                signal.raise_signal(signal.SIGINT)


def _classifier(listener: _Listener | None = None, **others: Any) -> KernelClassifier:
    given = {"solver": SVM(tol=1e-3), "scale": None, "dtype": "float64", "device": "cpu"} | others
    callbacks = None if listener is None else [listener]
    return KernelClassifier(KERNEL, "hinge", AllRows(), alpha=ALPHA, callbacks=callbacks, **given)


def _objective(model: KernelClassifier, X: HostArray, y: HostArray) -> float:
    """Return the objective of a model of two classes."""
    points, coef = model.model_.points, model.dual_coef_
    norm = float((coef * (KERNEL.block(points, points) @ coef)).sum())
    margins = np.where(y == 1, 1, -1) * model.decision_function(X)
    return float(np.maximum(0, 1 - margins).mean()) + ALPHA / 2 * norm


def test_ctrl_c_ends_with_the_model_so_far_and_its_gap() -> None:
    X, y = _rows()
    listener = _Listener(press_after=3)
    stopped = _classifier(listener).fit(X, y)
    assert stopped.stop_reason_ == "interrupted"
    assert len(listener.steps) == 3
    best = _objective(_classifier().fit(X, y), X, y)
    above, gap = _objective(stopped, X, y) - best, stopped.history_[-1].optimality
    assert 1e-3 < above <= gap < 1
    margins = np.where(y == 1, 1, -1) * stopped.decision_function(X)
    assert stopped.history_[-1].loss == pytest.approx(np.maximum(0, 1 - margins).mean(), rel=1e-9)


def test_the_limit_of_time_holds_within_the_solution() -> None:
    X, y = _rows()
    hard = SVM(tol=1e-14)
    stopped = _classifier(solver=hard, max_seconds=0.2).fit(X, y)
    assert stopped.stop_reason_ == "max_seconds"
    assert stopped.history_[-1].optimality > 0
    assert stopped.history_[-1].seconds < 10


def test_progress_has_the_gap_as_it_falls() -> None:
    X, y = _rows()
    listener = _Listener()
    model = _classifier(listener).fit(X, y)
    gaps = [step.optimality for step in listener.steps]
    assert {(step.measure, step.tol) for step in listener.steps} == {("duality gap", 1e-3)}
    assert gaps[-1] == model.history_[-1].optimality <= 1e-3 < gaps[0]
    assert gaps[len(gaps) // 2] < gaps[0]
    assert model.stop_reason_ == "converged"


@pytest.mark.parametrize(
    ("n_classes", "others"),
    [
        (2, {}),
        (3, {}),
        (2, {"solver": SVM(tol=1e-3, cache_bytes=80 * N * 8)}),
        (3, {"solver": SVM(tol=1e-3, nu=0.6), "alpha": 0.0}),
        (2, {"fit_intercept": False}),
    ],
    ids=["two classes", "three classes", "little memory", "nu", "without an offset"],
)
@pytest.mark.parametrize("after", [6, 12])
def test_a_checkpoint_goes_on_within_the_solution(
    n_classes: int, others: dict[str, Any], after: int, tmp_path: Path
) -> None:
    X, y = _rows(n_classes)
    listeners = [_Listener(), _Listener(press_after=after), _Listener()]
    whole = _classifier(listeners[0]).set_params(**others).fit(X, y)
    place = {"checkpoint": str(tmp_path / "c"), "warm_start": True}
    stopped = _classifier(listeners[1], **place).set_params(**others).fit(X, y)
    assert stopped.stop_reason_ == "interrupted"
    resumed = _classifier(listeners[2], **place).set_params(**others).fit(X, y)
    assert resumed.stop_reason_ == "converged"
    assert len(listeners[2].resumed) == 1
    assert len(listeners[1].steps) + len(listeners[2].steps) <= len(listeners[0].steps) + 15
    scores = whole.decision_function(X)
    np.testing.assert_allclose(resumed.decision_function(X), scores, atol=2e-2 * np.abs(scores).max())


def test_outputs_that_are_not_begun_have_the_best_constant() -> None:
    X, y = _rows(3)
    stopped = _classifier(_Listener(press_after=1)).fit(X, y)
    shares = np.bincount(y) / N
    np.testing.assert_array_equal(
        stopped.decision_function(X)[:, 1:], np.where(shares[1:] > 0.5, 1, -1)[None].repeat(N, 0)
    )
    assert stopped.score(X, y) > shares.max() - 0.05
    assert np.isfinite(stopped.history_[-1].optimality)


def test_a_quantile_that_is_not_begun_is_that_of_the_targets() -> None:
    X, _ = _rows()
    y = X[:, 0] + np.random.default_rng(1).normal(size=N)
    stopped = KernelRegressor(
        KERNEL, "quantile:0.2,0.8", AllRows(), "svm", ALPHA, dtype="float64", callbacks=[_Listener(press_after=1)]
    ).fit(X, y)
    assert stopped.stop_reason_ == "interrupted"
    assert np.median(stopped.predict(X)[:, 1]) == pytest.approx(np.quantile(y, 0.8), abs=0.01)


def test_what_has_ended_is_not_stopped() -> None:
    X, y = _rows()
    listener = _Listener()
    _classifier(listener).fit(X, y)
    last = _classifier(_Listener(press_after=len(listener.steps))).fit(X, y)
    assert last.stop_reason_ == "converged"

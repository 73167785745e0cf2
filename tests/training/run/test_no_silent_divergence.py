"""No fit ends well with a model that is worse than none, whatever its solver, rows and weights."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DivergenceError
from daskkern.events import Event, FitFinished, StageFinished
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import SGD, EigenPro, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

N, D = 600, 5
SOLVERS: dict[str, tuple[Solver[object], BasisSpec]] = {
    "eigenpro, all rows": (EigenPro(), AllRows()),
    "eigenpro, landmarks": (EigenPro(), Landmarks(60)),
    "eigenpro, momentum": (EigenPro(momentum=0.5, window=1), Landmarks(60)),
    "eigenpro, random features": (EigenPro(), RandomFeatures(60)),
    "eigenpro, nystrom features": (EigenPro(), NystromFeatures(60)),
    "eigenpro, linear": (EigenPro(), Linear()),
    "nystrom_sgd": (NystromSGD(mode="streamed", step_rule="paper"), Landmarks(60)),
    "sgd, all rows": (SGD(), AllRows()),
    "sgd, random features": (SGD(), RandomFeatures(60)),
    "sgd, linear": (SGD(), Linear()),
}


def _rows(n: int = N, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def _source() -> ArraySource:
    X, y = _rows()
    return ArraySource(X, y[:, None], None, SourceInfo(N, D, "regression", None, Scaling(), None, 1, True))


def _diverging(name: str, epochs: int = 3) -> Fit:
    """Return a fit whose steps are a hundred times too long, for so few steps that its numbers stay in their range."""
    solver, basis = SOLVERS[name]
    settings = FitSettings(
        Laplacian(3.0), Squared(), basis, solver, max_epochs=epochs, batch_size=100, dtype="float64", device="cpu"
    )
    fit = Fit.of(_source(), settings)
    state = fit.prepared.state
    longer = replace(state, beta=state.beta / 100, top=state.top / 100)
    fit.prepared = replace(fit.prepared, state=longer)
    return fit


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("name", "ranks"), [*((name, 1) for name in SOLVERS), ("eigenpro, all rows", 2), ("eigenpro, landmarks", 3)]
)
def test_a_fit_that_ends_above_the_model_0_is_refused_by_all_solvers_on_all_ranks(name: str, ranks: int) -> None:
    with pytest.raises(
        DivergenceError, match=r"ended with a mean training loss of .* on 600 training rows, where f = 0"
    ):
        _diverging(name).results(ranks)


@pytest.mark.long
def test_the_same_steps_at_their_right_length_are_not_refused() -> None:
    for solver, basis in SOLVERS.values():
        settings = FitSettings(
            Laplacian(3.0), Squared(), basis, solver, max_epochs=2, batch_size=100, dtype="float64", device="cpu"
        )
        assert Fit.of(_source(), settings).results(1)[0].reason == "max_epochs"


def test_virtual_shards_refuse_together() -> None:
    fit = _diverging("eigenpro, landmarks")
    fit.settings = replace(fit.settings, virtual_shards=3)
    with pytest.raises(DivergenceError, match="ended with a mean training loss"):
        fit.results(1)


def _pressed_after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls))
    return lambda: next(left, None) is None


def test_an_interrupted_fit_keeps_its_model_and_says_that_it_is_worse_than_none() -> None:
    fit, events = _diverging("eigenpro, landmarks", epochs=50), list[Event]()
    fit.settings = replace(fit.settings, batch_size=100)
    results = fit.results(1, listen=events.append, stop=_pressed_after(3))
    assert results[0].reason == "interrupted"
    said = [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "objective"]
    assert len(said) == 1
    assert "where f = 0 has" in said[0]
    assert [event.note for event in events if isinstance(event, FitFinished)] == said
    assert results[0].note == said[0]


@pytest.mark.repeated
def test_a_fit_of_rows_that_say_nothing_of_the_targets_is_not_refused() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((3000, 4)), rng.standard_normal(3000)
    KernelRegressor("gaussian:2", basis=Landmarks(50), max_epochs=2, device="cpu").fit(X, y)
    KernelRegressor("gaussian:2", basis=Landmarks(50), max_epochs=2, alpha=10.0, device="cpu").fit(X, y)
    labels = rng.integers(0, 3, 3000)
    KernelClassifier("gaussian:2", basis=Landmarks(50), max_epochs=2, device="cpu").fit(X, labels)


@pytest.mark.long
def test_rows_that_come_later_are_compared_with_the_model_that_they_found() -> None:
    """One class after the other: a step of one epoch is better than the model before, and worse than f = 0."""
    X, y = _rows(900)
    labels = (y > 0).astype(int)
    model = KernelClassifier("gaussian:2", basis=Landmarks(50), loss="logistic", device="cpu")
    model.partial_fit(X, labels, classes=[0, 1])
    for _ in range(5):
        model.partial_fit(X[labels == 0], labels[labels == 0])
    model.partial_fit(X[labels == 1][:20], labels[labels == 1][:20])
    assert np.isfinite(model.decision_function(X)).all()

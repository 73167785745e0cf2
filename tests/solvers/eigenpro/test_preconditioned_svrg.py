"""Preconditioned SVRG: its steps are those of dense algebra, and features of unlike sizes do not slow it down."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import Linear
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError
from daskkern.losses import Squared
from daskkern.preconditioners import CovarianceState
from daskkern.solvers import SVRG, PreconditionedSVRG
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from tests.support.fits import Fit, toy_settings

N, D, ALPHA = 240, 8, 1e-4


def _fit(solver: SVRG, epochs: int, batch_size: int = 24) -> Fit:
    """A linear model without a constant, of features whose covariance has eigenvalues from 1 to 1e-3."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) @ np.diag(np.logspace(0, -1.5, D)) @ np.linalg.qr(rng.standard_normal((D, D)))[0]
    y = X @ np.linalg.pinv(X) @ rng.standard_normal((N, 1)) + 0.1 * rng.standard_normal((N, 1))
    source = ArraySource(X, y, None, SourceInfo(N, D, "regression", None, Scaling(), None, 1, True))
    settings = toy_settings(Linear(intercept=False), solver, Squared())
    changes = {"alpha": ALPHA, "fit_intercept": False, "max_epochs": epochs, "batch_size": batch_size, "scale": None}
    return Fit.of(source, replace(settings, **changes))


def _solved(fit: Fit) -> tuple[HostArray, HostArray, HostArray]:
    """Return the coefficients by feature, the rows, and the targets as the fit has them."""
    (result,) = fit.results(1)
    coef = np.empty((D, 1))
    coef[result.ids] = result.coef
    return coef, fit.source.X, fit.prepared.targets.encode(fit.source.y)


def _excess(fit: Fit) -> float:
    """Return by how much the objective is above its least value, in units of that of the model 0."""
    coef, X, y = _solved(fit)
    H = X.T @ X / N + ALPHA * np.eye(D)
    best = np.linalg.solve(H, X.T @ y / N)
    gap = coef - best
    return float((gap.T @ H @ gap)[0, 0] / (y.T @ y / N)[0, 0])


def test_a_pass_of_one_batch_is_a_preconditioned_gradient_step() -> None:
    """With one batch of all rows and w~ = w = 0 the step is along P times the full gradient."""
    fit = _fit(PreconditionedSVRG(inner=1, n_directions=3), 1, N)
    coef, X, y = _solved(fit)
    state = fit.prepared.state
    assert isinstance(state, CovarianceState)
    E, values = state.vectors, state.eigenvalues
    np.testing.assert_allclose(state.damping, 1 - values[3] / values[:3])
    P = np.eye(D) - E @ np.diag(state.damping) @ E.T
    along = P @ X.T @ y / N
    scale = float((along.T @ coef)[0, 0] / (along.T @ along)[0, 0])
    np.testing.assert_allclose(coef, scale * along, atol=1e-9 * np.abs(coef).max())
    assert scale == pytest.approx(0.5 * state.step_size(N, 1.0, ALPHA), rel=0.2)  # rows of unlike sizes shorten it


@pytest.mark.long
def test_it_needs_far_fewer_passes_than_svrg() -> None:
    ours = _excess(_fit(PreconditionedSVRG(tol=0, n_directions=5), 12))
    theirs = _excess(_fit(SVRG(tol=0), 12))
    none = _excess(_fit(PreconditionedSVRG(tol=0, n_directions=0), 12))
    assert ours < theirs / 30
    assert none > theirs / 3


@pytest.mark.parametrize("wrong", [{"n_directions": -1}, {"subsample": 0}, {"n_directions": "many"}])
def test_impossible_numbers_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="or more, or 'auto'"):
        PreconditionedSVRG(**wrong)

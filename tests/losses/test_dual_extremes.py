"""Dual steps at extreme scores, dual variables and curvatures: what rounding and poor starts of iterations break."""

from itertools import product

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.losses import (
    LOSSES,
    Dual,
    EpsilonInsensitive,
    Huber,
    Loss,
    Quantile,
    SmoothedHinge,
    SquaredEpsilonInsensitive,
)

EVERY: list[Loss] = [
    *(loss() for loss in LOSSES.values()),
    SmoothedHinge(1e-6),
    Huber(0.4),
    Quantile(0.9),
    EpsilonInsensitive(0.7),
    SquaredEpsilonInsensitive(0.7),
]
SCORES = [0, 1, -1, 30, -30, 1e3, -1e3, 1e8, -1e8]
SHARES = [0, 1e-12, 1e-3, 0.5, 1 - 1e-9, 1]  # of the way to the edge of the conjugate's domain
CURVATURES = 10.0 ** np.arange(-12, 13, 2)
EPS = np.finfo(float).eps

Cases = tuple[HostArray, HostArray, HostArray, HostArray]


def _joint(loss: Loss) -> Cases:
    cases = list(product(SCORES, SCORES, range(3), SHARES, CURVATURES))
    z = np.array([[first, second, 0.0] for first, second, *_ in cases])
    y = np.eye(3)[[case[2] for case in cases]]
    elsewhere = 10 * np.random.default_rng(0).standard_normal(z.shape)
    share, Q = (np.array([[case[at]] for case in cases]) for at in (3, 4))
    return z, -loss.gradient(elsewhere, y) * share, y, Q


def _single(loss: Loss) -> Cases:
    targets = [0.0, 1.0, -3.0, 1e4] if "regression" in loss.tasks else [-1.0, 1.0]
    cases = np.array(list(product(SCORES, targets, SHARES, CURVATURES, [-1e3, -1, 1, 1e3])))
    z, y, share, Q, elsewhere = (cases[:, [at]] for at in range(5))
    return z, -loss.gradient(elsewhere, y) * share, y, Q


def _largest(values: HostArray) -> HostArray:
    return np.asarray(np.abs(values).max(axis=1))


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.spec())
def test_the_dual_step_is_minus_a_slope_at_extremes(loss: Loss) -> None:
    """As the law of the same name among those of conjugates, with a tolerance of rounding only."""
    assert isinstance(loss, Dual)
    z, u, y, Q = _joint(loss) if loss.joint else _single(loss)
    v = loss.dual_step(z, u, y, Q)
    f = z + Q * (v - u)
    gap = np.abs(loss.value(f, y) + loss.conjugate(-v, y) + (v * f).sum(axis=1))
    slopes = 1 + _largest(v) + _largest(y)
    rounding = 64 * EPS * (slopes * (1 + _largest(z) + Q[:, 0] * (_largest(u) + slopes)) + slopes**2)
    worst = int(np.argmax(gap / (rounding + 1e-8 * (1 + _largest(f)))))
    assert gap[worst] <= rounding[worst] + 1e-8 * (1 + _largest(f)[worst]), (z[worst], u[worst], y[worst], Q[worst])


def test_the_logistic_step_from_an_edge_of_the_domain() -> None:
    """Newton's steps once left the bracket from here, and the last of them was taken for the root."""
    step = LOSSES["logistic"]().dual_step  # type: ignore[attr-defined]
    found = step(np.array([[30.0]]), np.array([[-0.0]]), np.array([[-1.0]]), np.array([[100.0]]))
    x = 30 + 100 * found[0, 0]
    np.testing.assert_allclose(found[0, 0], -1 / (1 + np.exp(-x)), rtol=1e-10)

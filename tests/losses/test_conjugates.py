"""Convex conjugates against brute force, and dual steps against the optimality that they claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import wrightomega

from daskkern.arrays import HostArray
from daskkern.losses import (
    LOSSES,
    BoxDual,
    Dual,
    EpsilonInsensitive,
    Huber,
    Loss,
    MulticlassHinge,
    Quantile,
    SmoothedHinge,
    SquaredEpsilonInsensitive,
)
from daskkern.losses.elementwise import wright_omega

EVERY = [
    *(loss() for loss in LOSSES.values()),
    SmoothedHinge(0.3),
    Huber(0.4),
    Quantile(0.9),
    EpsilonInsensitive(0.7),
    SquaredEpsilonInsensitive(0.7),
    MulticlassHinge([[0, 1, 5], [0.5, 0, 1], [2.25, 0, 0]]),
]
each_loss = pytest.mark.parametrize("loss", [loss for loss in EVERY if isinstance(loss, Dual)], ids=lambda x: x.spec())
each_of_one_output = pytest.mark.parametrize(
    "loss", [loss for loss in EVERY if isinstance(loss, Dual) and not loss.joint], ids=lambda x: x.spec()
)
laws = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 1 << 30)
GRID = np.linspace(-30, 30, 60_001)


def _sample(loss: Loss, seed: int, m: int = 10, c: int = 3) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """Return scores, dual variables within the domain, targets and Q."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], (m, c))
    if "regression" in loss.tasks:
        y = rng.standard_normal((m, c))
    if loss.joint:
        y = np.eye(c)[rng.integers(0, c, m)]
    elsewhere = 3 * rng.standard_normal((m, c))
    u = -loss.gradient(elsewhere, y) * rng.uniform(0.3, 1, (m, 1))
    return 3 * rng.standard_normal((m, c)), u, y, 10.0 ** rng.uniform(-4, 4, (m, 1))


def test_every_loss_has_a_dual() -> None:
    assert all(isinstance(loss, Dual) for loss in EVERY)


@pytest.mark.one_in(2)
@each_of_one_output
@laws
@given(seed=seeds)
def test_the_conjugate_is_the_largest_difference_of_slope_and_value(loss: Loss, seed: int) -> None:
    assert isinstance(loss, Dual)
    _, u, y, _ = _sample(loss, seed, c=1)
    for slope, target in zip(-u[:, 0], y[:, 0], strict=True):
        f = GRID[:, None]
        largest = (slope * GRID - loss.value(f, np.full_like(f, target))).max()
        found = loss.conjugate(np.array([[slope]]), np.array([[target]]))
        np.testing.assert_allclose(found, [largest], atol=2e-3)
        assert found[0] >= largest - 1e-9


@each_loss
@laws
@given(seed=seeds)
def test_values_and_conjugates_add_up_to_the_product_at_the_gradient_and_to_more_elsewhere(
    loss: Loss, seed: int
) -> None:
    assert isinstance(loss, Dual)
    f, u, y, _ = _sample(loss, seed)
    slope = loss.gradient(f, y)
    touching = loss.value(f, y) + loss.conjugate(slope, y) - (slope * f).sum(axis=1)
    np.testing.assert_allclose(touching, 0, atol=1e-9)
    assert (loss.value(f, y) + loss.conjugate(-u, y) + (u * f).sum(axis=1) >= -1e-9).all()


@each_loss
def test_no_loss_has_slopes_beyond_its_domain(loss: Loss) -> None:
    assert isinstance(loss, Dual)
    f, _, y, _ = _sample(loss, 0)
    steep = 1e3 * np.sign(y + (y == 0))
    conjugate = loss.conjugate(steep, y)
    assert (np.isinf(conjugate) | (conjugate >= (steep * f).sum(axis=1) - loss.value(f, y))).all()
    if loss.name not in ("squared", "squared_epsilon_insensitive"):
        assert np.isinf(conjugate).all()


@each_loss
@laws
@given(seed=seeds)
def test_the_dual_step_is_minus_a_slope_at_the_scores_that_it_leads_to(loss: Loss, seed: int) -> None:
    """The optimality of the row's own dual: ``-v`` is a subgradient at ``z + Q (v - u)``."""
    assert isinstance(loss, Dual)
    z, u, y, Q = _sample(loss, seed)
    v = loss.dual_step(z, u, y, Q)
    f = z + Q * (v - u)
    gap = loss.value(f, y) + loss.conjugate(-v, y) + (v * f).sum(axis=1)
    np.testing.assert_allclose(gap, 0, atol=1e-8 * (1 + np.abs(f).max()))


@pytest.mark.parametrize("loss", [loss for loss in EVERY if isinstance(loss, Dual)], ids=lambda x: x.spec())
def test_no_other_dual_variables_are_better(loss: Loss) -> None:
    assert isinstance(loss, Dual)
    z, u, y, Q = _sample(loss, 1, m=4)

    def dual(v: HostArray, row: int) -> float:
        move = v - u[row]
        conjugate = loss.conjugate(-v[None], y[row][None])[0]  # type: ignore[attr-defined]
        return float(-conjugate - move @ z[row] - Q[row, 0] / 2 * move @ move)

    best = loss.dual_step(z, u, y, Q)
    rng = np.random.default_rng(0)
    for row in range(4):
        value = dual(best[row], row)
        others = best[row] + rng.standard_normal((300, 3)) * 10.0 ** rng.uniform(-6, 0, (300, 1))
        if loss.joint:
            others -= (others - best[row]).mean(axis=1, keepdims=True)
        assert all(dual(other, row) <= value + 1e-10 for other in others)


def test_wrights_function_is_that_of_scipy() -> None:
    x = np.concatenate([np.linspace(-690, 100, 3001), np.linspace(-5, 5, 3001), [1e6, 1e15]])
    np.testing.assert_allclose(wright_omega(x), wrightomega(x), rtol=1e-13)


@pytest.mark.parametrize("name", ["logistic", "multinomial_logistic"])
def test_newton_steps_agree_with_a_general_minimiser(name: str) -> None:
    loss = LOSSES[name]()
    assert isinstance(loss, Dual)
    z, u, y, Q = _sample(loss, 2, m=6)
    found = loss.dual_step(z, u, y, Q)
    for row in range(6):

        def primal(f: HostArray, row: int = row) -> float:
            away = f - (z[row] - Q[row] * u[row])
            return float(loss.value(f[None], y[row][None])[0] + away @ away / (2 * Q[row, 0]))

        f = minimize(primal, z[row], method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(found[row], -loss.gradient(f[None], y[row][None])[0], atol=1e-4)


@pytest.mark.parametrize("loss", [loss for loss in EVERY if isinstance(loss, BoxDual)], ids=lambda x: x.spec())
def test_boxes_give_the_loss_back(loss: Loss) -> None:
    """The loss is the largest of -u (f + slope) in each box, summed over the boxes."""
    assert isinstance(loss, BoxDual)
    rng = np.random.default_rng(0)
    y = np.where(rng.normal(size=(40, loss.heads)) > 0, 1.0, -1.0)
    if "classification" not in loss.tasks:
        y = rng.normal(size=y.shape)
    f = 2 * rng.normal(size=y.shape)
    boxes = loss.dual_boxes(y)
    each = [np.maximum(-box.low * (f + box.slope), -box.high * (f + box.slope)) for box in boxes]
    np.testing.assert_allclose(sum(each).sum(axis=1), loss.value(f, y), atol=1e-12)
    np.testing.assert_array_equal(boxes[0].of_output(0).slope, boxes[0].slope[:, :1])

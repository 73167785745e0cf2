"""What an objective falls by among functions near a model."""

import numpy as np
import pytest

from daskkern.arrays import FloatArray
from daskkern.losses import Loss, parse_loss
from daskkern.solvers.local_decrease import Local, Nearby

K, M = 120, 30
LOSSES = ["squared", "squared_hinge", "logistic", "huber:1.0", "hinge", "absolute"]


def _local(loss: Loss, alpha: float = 1e-2, more: float = 0.0, seed: int = 0) -> Local:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((K, 3))
    gram = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 4)
    f = gram[:, :M] @ rng.standard_normal((M, 1)) / 3
    near = Nearby.of_kernels(gram[:, :M], f[:M], gram[:M, :M].copy())
    weight = rng.random(K)
    return Local(loss, alpha, near, f, np.sign(X[:, :1]), weight / weight.sum(), more)


def _objective(local: Local, b: FloatArray) -> float:
    return float(local.losses(local.near.values @ b).sum()) + local.penalty(b) + local.more / 2 * float((b * b).sum())


@pytest.mark.parametrize("more", [0.0, 0.1])
def test_of_the_squared_loss_the_minimum_is_found(more: float) -> None:
    local = _local(parse_loss("squared"), more=more)
    H, w = local.near.values, local.weight[:, None]
    system = H.T @ (w * H) + (local.alpha + more) * np.eye(H.shape[1])
    right = H.T @ (w * (local.y - local.f)) - local.alpha * local.near.inner
    np.testing.assert_allclose(local.minimise(), np.linalg.solve(system, right), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", LOSSES[:4])
def test_of_smooth_losses_little_is_left(name: str) -> None:
    local = _local(parse_loss(name))
    b = local.minimise()
    again = Local(local.loss, local.alpha, local.near, local.f, local.y, local.weight)
    start, found = _objective(again, 0 * b), _objective(again, b)
    rng = np.random.default_rng(1)
    nearby = [_objective(again, b + 1e-2 * rng.standard_normal(b.shape)) for _ in range(200)]
    assert found < start
    assert min(nearby) > found - 1e-2 * (start - found)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_no_loss_rises(name: str, seed: int) -> None:
    local = _local(parse_loss(name), seed=seed)
    b = local.minimise()
    assert _objective(local, b) < _objective(local, 0 * b)


def test_the_norm_of_a_model_in_the_span_is_known() -> None:
    local = _local(parse_loss("squared"))
    whole = -local.near.inner
    np.testing.assert_allclose(local.near.values @ whole, -local.f, atol=1e-6)
    assert local.penalty(whole) == pytest.approx(-local.alpha / 2 * float((whole * whole).sum()))

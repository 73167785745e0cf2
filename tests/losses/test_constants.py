"""The best constant scores of a classifier, and losses of scores that a constant is added to."""

import pickle

import numpy as np
import pytest

from daskkern.losses import (
    LOSSES,
    Curved,
    Dual,
    Hinge,
    Logistic,
    Loss,
    MulticlassHinge,
    MultinomialLogistic,
    Probabilistic,
    Smooth,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    best_constant,
    encode,
    n_outputs,
    with_constant,
)

SMOOTH = [Squared(), SquaredHinge(), SmoothedHinge(), Logistic(), MultinomialLogistic()]
SHARES = np.array([0.7, 0.2, 0.1])
CODES = np.repeat([0, 1, 2], [7, 2, 1])


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_other_constant_has_less_loss(loss: Loss, n_classes: int) -> None:
    codes = np.minimum(CODES, n_classes - 1)
    shares = np.bincount(codes) / len(codes)
    c = n_outputs(loss, n_classes)
    best = best_constant(loss, shares, c)
    assert best is not None
    y = encode(loss, codes, n_classes, "float64")

    def mean(constant: np.ndarray) -> float:
        return float(loss.value(np.tile(constant, (len(y), 1)), y).mean())

    rng = np.random.default_rng(0)
    for step in (1e-3, 0.1, 1.0):
        assert mean(best) <= mean(best + step * rng.standard_normal(c)) + 1e-12


def test_losses_with_kinks_have_none() -> None:
    assert best_constant(Hinge(), SHARES, 3) is None
    assert best_constant(MulticlassHinge(), SHARES, 3) is None


@pytest.mark.parametrize("loss", [kind() for kind in LOSSES.values() if "classification" in kind.tasks], ids=repr)
def test_the_loss_of_moved_scores_has_the_abilities_of_the_loss(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    y = encode(loss, CODES, 3, "float64")
    b, f = rng.standard_normal(3), rng.standard_normal(y.shape)
    moved = pickle.loads(pickle.dumps(with_constant(loss, b)))
    np.testing.assert_array_equal(moved.value(f, y), loss.value(f + b, y))
    np.testing.assert_array_equal(moved.gradient(f, y), loss.gradient(f + b, y))
    assert moved.gradient(f.astype(np.float32), y.astype(np.float32)).dtype == np.float32
    assert (moved.name, moved.tasks, moved.joint, moved.spec()) == (loss.name, loss.tasks, loss.joint, loss.spec())
    for ability in (Smooth, Curved, Probabilistic, Dual):
        assert isinstance(moved, ability) == isinstance(loss, ability)
    if isinstance(moved, Smooth):
        assert moved.smoothness == loss.smoothness  # type: ignore[attr-defined]
    if isinstance(moved, Curved):
        np.testing.assert_array_equal(moved.curved(f, y, f), loss.curved(f + b, y, f))  # type: ignore[attr-defined]
    if isinstance(moved, Dual):
        slope = moved.gradient(f, y)  # where Fenchel's inequality is an equality
        pairs = (slope * f).sum(axis=1)
        np.testing.assert_allclose(moved.value(f, y) + moved.conjugate(slope, y), pairs, atol=1e-9)
        np.testing.assert_allclose(moved.dual_step(f, -slope, y, np.ones((10, 1))), -slope, atol=1e-8)

"""Nystrom-SGD with the paper's steps against algorithm 1 of Pfahler and Morik (2018) as it is printed."""

import numpy as np
import pytest
import scipy.linalg

from daskkern.arrays import HostArray
from daskkern.losses import Hinge, Logistic, Loss, SquaredHinge
from daskkern.solvers import NystromSGD
from tests.support import naive
from tests.support.solvers import steps_bench as bench
from tests.support.solvers.steps_bench import nystrom, scores, toy, train


def _printed(setup: bench.Setup, steps: int, k: int | None) -> HostArray:
    """Return the values at all rows after algorithm 1: equations 22 to 25, with the constant step of section 6.1."""
    problem, spec = setup.toy, setup.toy.kernel.spec()
    sigma, V = scipy.linalg.eigh(naive.kernel_matrix(spec, setup.points, setup.points))
    Q, R = np.linalg.qr(naive.kernel_matrix(spec, problem.X, setup.points) @ V / sigma)
    found, rotation = scipy.linalg.eigh((R * sigma) @ R.T)
    Lambda, U = found[::-1], (Q @ rotation)[:, ::-1]
    m, n = len(Lambda), len(problem.X)
    n_damped = m if k is None else k
    after = Lambda[min(n_damped, m - 1)]  # l_(k+1); k = m has none
    tilde = np.zeros(m)
    tilde[:n_damped] = (1 - np.sqrt(after / Lambda[:n_damped])) / Lambda[:n_damped]
    eta = n / np.sqrt(Lambda[0] * Lambda[max(n_damped - 1, 0)])  # l_i are eigenvalues of the covariance, Lambda / n
    w = np.zeros((m, problem.y.shape[1]))
    for number in range(steps):
        B = problem.batch(number)
        slopes = bench.gradient(problem, U @ w, B)
        w = w - eta / len(B) * (Lambda - tilde * Lambda**2)[:, None] * (U[B].T @ slopes)
    values: HostArray = U @ w
    return values


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Logistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("k", [0, 6, None])
@pytest.mark.parametrize("stored", [False, True])
def test_the_steps_are_constant_for_every_loss_as_printed(loss: Loss, k: int | None, stored: bool) -> None:
    setup = nystrom(toy(loss, epochs=3), NystromSGD(step_rule="paper", averaging=0.0), k=k)
    expected = _printed(setup, 12, k)
    np.testing.assert_allclose(
        scores(setup, train(setup, steps=12, stored=stored)), expected, atol=1e-7 * np.abs(expected).max()
    )

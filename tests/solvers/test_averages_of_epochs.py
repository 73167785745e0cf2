"""The mean of the last iterates covers whole epochs, over which the noise of batches cancels."""

import numpy as np
import pytest

from daskkern.basis import Columns, KernelPart
from daskkern.kernels import LinearKernel
from daskkern.losses import Squared
from daskkern.solvers import Problem


@pytest.mark.parametrize(
    ("epochs", "share", "start"), [(20, 1 / 3, 13 * 7), (10, 1 / 2, 5 * 7), (2, 1 / 3, 9), (1, 1 / 2, 4), (3, 0.0, 21)]
)
def test_averages_begin_with_an_epoch(epochs: int, share: float, start: int) -> None:
    part = KernelPart(LinearKernel(), Columns(np.arange(2), 0, ()), LinearKernel().points(np.eye(2)))
    problem = Problem(part, Squared(), 0.0, 1, 7, epochs, "float64", None)
    assert problem.averaging_start(share) == start

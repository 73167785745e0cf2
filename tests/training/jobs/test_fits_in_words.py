"""What the page of fits says of a fit."""

import pytest

from daskkern.basis import AllRows, Landmarks, Linear, RandomFeatures
from daskkern.basis.base import BasisSpec
from daskkern.kernels import AutoKernel, Gaussian, Kernel
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.jobs.in_words import method_in_words
from daskkern.training.run.settings import FitSettings


@pytest.mark.parametrize(
    ("kernel", "basis", "alpha", "words"),
    [
        (Gaussian("median"), Landmarks(1000), "auto", "gaussian:median, squared, 800 landmarks, penalty auto"),
        (Gaussian(2.51234), AllRows(), 1e-6, "gaussian:2.512, squared, all 800 rows, penalty 1e-06"),
        (AutoKernel(), RandomFeatures(2000), 0.0, "auto, squared, 2,000 random features, penalty 0"),
        (Gaussian(1.0), Linear(), 1.0, "squared, linear, penalty 1"),
    ],
)
def test_kernel_loss_columns_and_penalty(kernel: Kernel, basis: BasisSpec, alpha: float | str, words: str) -> None:
    assert method_in_words(FitSettings(kernel, Squared(), basis, EigenPro(), alpha=alpha), 800) == words

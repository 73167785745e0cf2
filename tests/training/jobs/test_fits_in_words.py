"""What the page of fits says of a fit."""

import pytest

from daskkern.basis import AllRows, Landmarks, Linear, RandomFeatures
from daskkern.basis.base import BasisSpec
from daskkern.kernels import AutoKernel, Gaussian, Kernel
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.jobs.descriptions import method_in_words, settings_in_words
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


def test_settings_that_fits_may_differ_in_have_names_and_words() -> None:
    one = FitSettings(Gaussian("median"), Squared(), Landmarks(1000), EigenPro(), alpha=1e-6, seed=1)
    other = FitSettings(Gaussian(2.0), Squared(), Landmarks(500, "k_means"), EigenPro(window=4), alpha="auto")
    words = [settings_in_words(settings, 800) for settings in (one, other)]
    assert words[0].keys() == words[1].keys()
    assert {name: (words[0][name], words[1][name]) for name in words[0] if words[0][name] != words[1][name]} == {
        "kernel": ("gaussian:median", "gaussian:2"),
        "columns": ("800 landmarks", "500 landmarks"),
        "landmarks by": ("uniform", "k_means"),
        "penalty": ("1e-06", "auto"),
        "seed": ("1", "0"),
        "window of the solver": (words[0]["window of the solver"], "4"),
    }
    assert "kernel" not in settings_in_words(FitSettings(Gaussian(1.0), Squared(), Linear(), EigenPro()), 800)

"""Small models to inspect, made by hand so that nothing has to be fitted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from daskkern import KernelModel
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian

D = 4
Make = Callable[..., KernelModel]


@pytest.fixture
def make() -> Make:
    """Return a function that makes a model of random points: of numbers, or with labels where `classes` are given."""

    def made(d: int = D, c: int = 1, classes: tuple[Any, ...] | None = None, **more: Any) -> KernelModel:
        rng = np.random.default_rng(0)
        points, coef = rng.standard_normal((30, d)), rng.standard_normal((30, c))
        scaling = Scaling("standard", tuple(np.linspace(-1, 1, d)), tuple(np.linspace(1, 2, d)))
        words = {
            "kernel": Gaussian(1.7),
            "points": points,
            "coef": coef,
            "scaling": scaling,
            "classes": classes,
            **more,
        }
        task, loss = ("regression", "squared") if classes is None else ("classification", "logistic")
        return KernelModel(**{"task": task, "loss": loss, "single_target": c == 1, **words})

    return made


@pytest.fixture(name="X")
def rows() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((60, D))

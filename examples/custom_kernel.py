"""Two kernels of your own: a formula, which is compiled and can be saved, and a Python function.

The angular kernel ``k(x, z) = 1 - angle(x, z) / pi`` is written both ways and fitted to scikit-learn's digits. So is
``1 / (1 + r)``, a function of the distance r, which inherits length scales and "median". A kernel with a formula runs
in every engine (compiled, NumPy, CUDA). Registered in ``KERNELS``, it can be named by a string and is found when a
model is loaded; a program that loads the model must register it too.

Run it with ``python examples/custom_kernel.py``; it takes a few seconds.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.arrays import Array
from daskkern.kernels import KERNELS, Kernel, RadialKernel
from daskkern.kernels.formula import Expression, Pair, arccos
from daskkern.kernels.registry import Entry


@dataclass(frozen=True)
class Angular(Kernel):
    """``k(x, z) = 1 - arccos(x.z / (|x| |z|)) / pi``."""

    name: ClassVar[str] = "angular"

    def formula(self, pair: Pair) -> Expression:
        return 1 - arccos(pair.cosine) / math.pi

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name}


@dataclass(frozen=True)
class Hyperbolic(RadialKernel):
    """``k(x, z) = 1 / (1 + r)``, ``r = |x - z| / length_scale``: positive definite for any number of features."""

    name: ClassVar[str] = "hyperbolic"

    def profile(self, r: Expression, r2: Expression) -> Expression:
        return 1 / (1 + r)


def angular(X: Array, Z: Array) -> Array:
    """The same as :class:`Angular`, as a function of tables of rows (m, d) and (p, d)."""
    lengths = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(Z, axis=1)
    return 1 - np.arccos(np.clip(X @ Z.T / lengths, -1, 1)) / np.pi


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landmarks", type=int, default=800, help="columns of the model (default: 800)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows (default: 10)")
    options = parser.parse_args(argv)

    KERNELS["angular"] = Entry(Angular, None)
    KERNELS["hyperbolic"] = Entry(Hyperbolic, "length_scale")
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.25, random_state=0)

    for what, kernel in (
        ("a formula", "angular"),
        ("a Python function", angular),
        ("a formula of the distance", "hyperbolic:median"),
    ):
        model = KernelClassifier(kernel, basis=Landmarks(options.landmarks), max_epochs=options.epochs)
        begun = time.perf_counter()
        model.fit(X_train, y_train)
        seconds = time.perf_counter() - begun
        print(f"{what}: {seconds:.2f} s, accuracy on the test rows: {model.score(X_test, y_test):.2%}")

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.zarr")
        light = daskkern.load(Path(folder) / "model.zarr")
    same = np.array_equal(light.predict(X_test), model.predict(X_test))
    print(f"saved and loaded again with {light.kernel}: the same predictions: {same}")


if __name__ == "__main__":
    main()

"""A loss of your own: expectile regression, fitted to scikit-learn's diabetes data.

The loss is ``|tau - [f > y]| (f - y)^2``: predictions below the target have weight tau, those above 1 - tau. Its
minimiser is the tau-expectile of the targets, for tau = 0.5 the mean. EigenPro needs only the value, the gradient and
the Lipschitz constant of the gradient. Registered in ``LOSSES``, the loss can be named by a string, and saved models
can be loaded.

Run it with ``python examples/custom_loss.py``; it takes a few seconds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.datasets import load_diabetes

from daskkern import AllRows, KernelRegressor
from daskkern.arrays import Array
from daskkern.losses import LOSSES
from daskkern.losses.base import Loss


@dataclass(frozen=True)
class Expectile(Loss):
    """``tau r^2`` for residuals ``r = f - y`` below 0, ``(1 - tau) r^2`` above; outputs summed."""

    name: ClassVar[str] = "expectile"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})

    tau: float = 0.5

    @property
    def smoothness(self) -> float:
        return 2 * max(self.tau, 1 - self.tau)

    def _weight(self, f: Array, y: Array) -> Array:
        high = (f > y).astype(f.dtype)
        return (1 - self.tau) * high + self.tau * (1 - high)

    def value(self, f: Array, y: Array) -> Array:
        return (self._weight(f, y) * (f - y) ** 2).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return 2 * self._weight(f, y) * (f - y)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30, help="passes over the rows (default: 30)")
    parser.add_argument("--alpha", type=float, default=0.003, help="ridge penalty (default: 0.003)")
    options = parser.parse_args(argv)

    LOSSES["expectile"] = Expectile
    X, y = load_diabetes(return_X_y=True)
    for tau in (0.1, 0.5, 0.9):
        model = KernelRegressor(
            "gaussian:median",
            loss=f"expectile:{tau}",
            basis=AllRows(),
            alpha=options.alpha,
            max_epochs=options.epochs,
            dtype="float64",
        )
        residual = y - model.fit(X, y).predict(X)
        below, above = residual.clip(max=0).sum(), residual.clip(min=0).sum()
        share = above / (above - below)  # at the minimum the residuals above have a share of 1 - tau
        print(
            f"expectile {tau}: {np.mean(residual < 0):.0%} of the targets are below the curve, "
            f"weight of those above {share:.3f}, at an expectile {1 - tau:.3f}"
        )


if __name__ == "__main__":
    main()

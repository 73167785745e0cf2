"""Interrupt a fit, go on from its checkpoint, and get the bits of the fit that was never interrupted.

The fit is interrupted as by Ctrl-C, after some seconds. What is left is the model so far and a checkpoint. A new
estimator, which could be one in another process, on another day, goes on from there.

Run it with ``python examples/resuming.py``; it takes a few seconds.
"""

import argparse
import signal
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

from daskkern import KernelClassifier, Landmarks


def estimator(epochs: int, checkpoint: Path | None = None) -> KernelClassifier:
    """Return a new estimator, which goes on from `checkpoint` if there is one."""
    return KernelClassifier(
        "gaussian:median",
        basis=Landmarks(300),
        max_epochs=epochs,
        checkpoint=checkpoint,
        warm_start=checkpoint is not None,
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="rows to generate (default: 20,000)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows (default: 10)")
    parser.add_argument("--after", type=float, default=1.5, help="seconds until the interrupt (default: 1.5)")
    options = parser.parse_args(argv)

    X, y = make_classification(options.rows, 20, n_informative=6, n_classes=3, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "fit.checkpoint"
        press = threading.Timer(options.after, signal.raise_signal, [signal.SIGINT])
        press.start()
        try:
            first = estimator(options.epochs, place).fit(X, y)
            print(f"ended in epoch {first.n_iter_} of {options.epochs}: {first.stop_reason_}")
        except KeyboardInterrupt:
            print("interrupted before there was a model; what follows begins anew")
        finally:
            press.cancel()
        second = estimator(options.epochs, place).fit(X, y)
        print(f"went on: {second.n_iter_} epochs, {second.stop_reason_}")
    whole = estimator(options.epochs).fit(X, y)
    same = np.array_equal(whole.dual_coef_, second.dual_coef_)
    print(f"the same bits as a fit that was never interrupted: {same}")


if __name__ == "__main__":
    main()

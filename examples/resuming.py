"""Interrupt a fit, resume it from its checkpoint, and get bitwise the model of an uninterrupted fit.

A callback simulates Ctrl-C when an epoch has ended, which leaves the model so far and a checkpoint. A new estimator,
which could be in another process, on another day, continues from there.

Run it with ``python examples/resuming.py``; it takes a few seconds.
"""

import argparse
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

from daskkern import KernelClassifier, Landmarks
from daskkern.events import EpochFinished, Event, FitResumed, Listener


def estimator(epochs: int, checkpoint: Path | None = None, callback: Listener | None = None) -> KernelClassifier:
    """Return a new estimator, which resumes from `checkpoint` if there is one and calls `callback` with its events."""
    return KernelClassifier(
        "gaussian:median",
        basis=Landmarks(300),
        max_epochs=epochs,
        checkpoint=checkpoint,
        warm_start=checkpoint is not None,
        callbacks=None if callback is None else [callback],
    )


def interrupt_after(epoch: int) -> Listener:
    """Return a callback that sends SIGINT, as Ctrl-C does, when this epoch has ended."""

    def listen(event: Event) -> None:
        if isinstance(event, EpochFinished) and event.epoch == epoch:
            signal.raise_signal(signal.SIGINT)

    return listen


def print_resumed(event: Event) -> None:
    """Print where a fit resumes, as a callback."""
    if isinstance(event, FitResumed):
        print(f"resumed in epoch {event.epoch} after {event.batch} batches")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="rows to generate (default: 20,000)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows (default: 10)")
    parser.add_argument("--after", type=int, default=2, help="epochs until the interrupt (default: 2)")
    options = parser.parse_args(argv)

    X, y = make_classification(options.rows, 20, n_informative=6, n_classes=3, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "fit.checkpoint"
        first = estimator(options.epochs, place, interrupt_after(options.after)).fit(X, y)
        print(f"ended in epoch {first.n_iter_} of {options.epochs}: {first.stop_reason_}")
        second = estimator(options.epochs, place, print_resumed).fit(X, y)
        print(f"ended: {second.n_iter_} epochs, {second.stop_reason_}")
    whole = estimator(options.epochs).fit(X, y)
    same = np.array_equal(whole.dual_coef_, second.dual_coef_)
    print(f"bitwise the same as a fit that was never interrupted: {same}")


if __name__ == "__main__":
    main()

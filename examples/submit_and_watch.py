"""Submit a detached fit to a cluster, follow it from another process, and fetch the model.

With ``--scheduler`` the fit runs there; ``--store`` and ``--out`` must then be accessible to every worker. Without it a
cluster of two local worker processes is started, and rows are generated.

Run it with ``python examples/submit_and_watch.py``; it takes about ten seconds.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster
from sklearn.datasets import make_classification

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.events import EpochFinished, Event


def print_epoch(event: Event) -> None:
    """Print a line for each epoch."""
    if isinstance(event, EpochFinished):
        print(f"  epoch {event.epoch}: loss {event.loss:.4f} after {event.seconds:.1f} s")


@contextmanager
def connected(scheduler: str | None) -> Iterator[Client]:
    """Yield a client of the given cluster, or of two local worker processes."""
    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def generate(path: Path, rows: int) -> str:
    X, y = make_classification(rows, 20, n_informative=6, n_classes=3, random_state=0)
    np.savez(path.with_suffix(".npz"), X=X, y=y, task="classification")
    daskkern.ingest(path.with_suffix(".npz"), path)
    return str(path)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", help="address of a running cluster (default: two local worker processes)")
    parser.add_argument("--store", help="store to fit (default: generated rows)")
    parser.add_argument("--out", help="where a worker writes the model (default: a temporary folder)")
    parser.add_argument("--rows", type=int, default=20_000, help="rows to generate (default: 20,000)")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the rows (default: 5)")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as temporary, connected(options.scheduler) as client:
        store = options.store or generate(Path(temporary) / "train.zarr", options.rows)
        out = options.out or str(Path(temporary) / "model.zarr")
        estimator = KernelClassifier("gaussian:median", basis=Landmarks(500), max_epochs=options.epochs, client=client)
        handle = estimator.fit(store, detach=True, out=out)
        print(f"submitted: {handle}")

        # From here on another process, on another machine, could do the same: it needs the scheduler's address.
        for status in daskkern.list_fits(client):
            print(f"known to the scheduler: {status.metadata.fit}, {status.state}")
        mine = daskkern.attach(client, handle.fit)
        ended = mine.watch(print_epoch, timeout_s=600)
        print(f"ended: {ended.state}, loss {ended.loss:.4f}")
        model = mine.result()
        print(f"the model: {model.points.shape[0]:,} landmarks, {model.nbytes:,} bytes, in {out}")


if __name__ == "__main__":
    main()

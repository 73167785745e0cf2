"""Rows of the papers' tables, run again on the available data, to compare the papers' figures with ours.

    python benchmarks/reproduce.py FOLDER --rows nystrom-fact asset-adult-512 --out benchmarks/results-reproduction.json

FOLDER holds fashion_mnist.npz, covtype.npz, adult.npz, magic.npz and imdb_words.npz, which `papers/reviews.py` makes.
Kernel, loss, epochs and landmarks are those of the row; its known differences are listed with it (`papers/rows.py`).
A row that is run again replaces its result.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contest.data import Data, load, tiny_data
from figures import Run, read, today, write
from papers.compared import beside_peer, costs_of_errors, row_orders
from papers.curves import CURVES, errors_by_epoch, mean_loss, phases
from papers.form import PaperRow
from papers.nystrom_kernels import NYSTROM_KERNELS
from papers.rows import ROWS
from products.machine import describe_machine, peak_bytes, sgemm_rate, versions

from daskkern import KernelClassifier
from daskkern.basis import AllRows, Landmarks
from daskkern.solvers import NYTRO, SAG, Direct, EigenPro

N_WATCHED = 2000
Labelled = tuple[Any, Any]


def run_row(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the results of the row here."""
    mine = row.of(data)
    ways = {"epochs": _epochs_needed, "loss": _last_loss, "steps": _steps, "orders": row_orders, "peer": beside_peer}
    ways |= {"costs": costs_of_errors, "seconds": phases}
    if row.curves:
        ways["curves"] = CURVES[row.curves]
    found = ways.get(row.unit, _fitted)(row, mine)
    paper = {
        "paper_loss": row.paper_loss,
        "paper_error": row.paper_error,
        "paper_seconds": row.paper_seconds,
        "paper_setup_seconds": row.paper_setup_seconds,
        "paper_epoch_seconds": row.paper_epoch_seconds,
        "n_paper_epochs": row.paper_epochs,
    }
    about = {"key": row.key, "table": row.table, "what": row.what, "paper_data": row.paper_data, "data": row.data}
    size = {"unit": row.unit, "n_rows": mine.X.shape[0], "n_features": mine.X.shape[1]}
    return {**about, **size, **{name: value for name, value in paper.items() if value is not None}, **found}


def _fitted(row: PaperRow, data: Data) -> dict[str, Any]:
    begun, processor = time.perf_counter(), time.process_time()
    model = row.estimator(data).fit(data.X, data.y)
    assert isinstance(model, KernelClassifier)
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    epochs = [float(value) for value in model.history_["seconds"]]
    return {
        "our_error": data.error(model.predict(data.X_test)),
        "our_seconds": round(seconds, 2),
        "our_processor_seconds": round(processor, 2),
        "our_setup_seconds": round(seconds - sum(epochs), 2),
        "our_epoch_seconds": round(sorted(epochs)[len(epochs) // 2], 3),
        "n_our_epochs": model.n_iter_,
    }


def _last_loss(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the mean loss of the model after the last epoch on the training rows.

    The history has another one: the mean over the batches of an epoch, each before its step.
    """
    begun = time.perf_counter()
    model = row.estimator(data, calibrate=False).fit(data.X, data.y)
    assert isinstance(model, KernelClassifier)
    seconds = time.perf_counter() - begun
    return {
        "our_loss": mean_loss(row.loss, model, data.X, data.y),
        "our_seconds": round(seconds, 2),
        "n_our_epochs": model.n_iter_,
    }


def _steps(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return, for the paper's kernels, by what the step of each loss is longer than ``1 / (l_1 l_k)^(1/2)``.

    And these steps of the paper's rule in units of the first kernel's. Kernels with a single direction above rounding
    are left out.
    """
    found: dict[str, Any] = {"kernels": [], "squared_step_ratio": [], "squared_hinge_step_ratio": []}
    rule: list[float] = []
    for name, kernel in NYSTROM_KERNELS.items():
        for loss in ("squared", "squared_hinge"):
            model = replace(row, kernel=kernel, loss=loss).estimator(data).fit(data.X, data.y)
            spectrum = model.history_.spectrum
            assert spectrum is not None
            if len(spectrum.eigenvalues) < 2:
                break
            first, kth = spectrum.eigenvalues[0], spectrum.eigenvalues[-2]  # the last one is l_(k+1)
            found[f"{loss}_step_ratio"].append(round(spectrum.step * float(first * kth) ** 0.5, 4))
        else:
            found["kernels"].append(name)
            rule.append(float(first * kth) ** -0.5)
    return {**found, "rule_step_ratio": [float(f"{step / rule[0]:.3g}") for step in rule]}


def _epochs_needed(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the number of epochs until the error on rows held out of training is that of the exact solution.

    The epoch with the least error there is the chosen one. Test rows only show what that choice costs: their error
    after it, and the least after any epoch. The fit is repeated for them, with the same batches and iterates.
    """
    kept, held = held_out(data)
    test = (data.X_test[:N_WATCHED], data.y_test[:N_WATCHED])
    exact = replace(row, solver=Direct(), alpha=1e-7, n_epochs=1, batch_size="auto").estimator(data).fit(*kept)
    on_held, on_test = (errors_by_epoch(row, data, kept, rows) for rows in (held, test))
    aim = 1 - exact.score(*held)
    chosen = on_held.index(min(on_held))
    return {
        "exact_error": 1 - exact.score(*test),
        "our_error": on_test[chosen],
        "best_test_error": min(on_test),
        "n_chosen_epochs": chosen + 1,
        "n_best_test_epochs": on_test.index(min(on_test)) + 1,
        "n_our_epochs": next((number for number, error in enumerate(on_held, 1) if error <= aim + 1e-9), None),
        "n_epochs_run": len(on_held),
    }


def held_out(data: Data) -> tuple[Labelled, Labelled]:
    """Return the training rows without those held out, and these: one in five, at most 2,000."""
    order = np.random.default_rng(1).permutation(data.X.shape[0])
    n_held = min(N_WATCHED, data.X.shape[0] // 5)
    held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
    return (data.X[kept], data.y[kept]), (data.X[held], data.y[held])


def tiny_rows() -> list[PaperRow]:
    """Return rows for generated data, one of each unit, to check that all run."""
    tiny = replace(_found("error"), data="tiny", basis=Landmarks(20), n_epochs=2)
    spectral = replace(tiny, basis=AllRows(), solver=EigenPro(subsample=50, n_directions=5))
    return [
        tiny,
        replace(tiny, loss="squared", paper_epochs=1),
        replace(spectral, loss="squared", paper_loss=1.0),
        replace(spectral, compares_steps=True),
        replace(_found("orders"), data="tiny", n_epochs=2),
        replace(_found("peer"), data="tiny", most_rows=100),
        replace(_found("costs"), data="tiny", loss="multiclass_hinge:0,1/2,0", most_rows=100),
        replace(tiny, loss="squared", solver=NYTRO(), curves="descent"),
        replace(tiny, loss="squared", curves="losses"),
        replace(tiny, curves="conditioning"),
        replace(spectral, loss="squared", curves="overhead"),
        replace(tiny, paper_setup_seconds=1.0, paper_epoch_seconds=1.0),
        replace(_found("orders"), data="tiny", n_epochs=2, loss="logistic", solver=SAG("sag"), curves="finite sums"),
    ]


def _found(unit: str) -> PaperRow:
    return next(row for row in ROWS if row.unit == unit)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    known = {row.key: row for row in ROWS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the npz files")
    parser.add_argument("--rows", nargs="+", choices=list(known), default=list(known), metavar="KEY")
    parser.add_argument("--list", action="store_true", help="list the rows, and how long they take")
    parser.add_argument("--out", type=Path, help="JSON file; rows are added to it, one by one")
    parser.add_argument("--tiny", action="store_true", help="one row on generated data, to check that it runs")
    options = parser.parse_args(argv)
    if options.list:
        print(*(f"{row.key:22s} {row.takes:8s} {row.data:14s} {row.what}" for row in ROWS), sep="\n")
        return
    if options.folder is None and not options.tiny:
        parser.error("name the folder of the npz files")
    before = read(options.out) if options.out is not None and options.out.exists() else []
    rate, rows = sgemm_rate(300 if options.tiny else 3000), []
    with tempfile.TemporaryDirectory() as made:
        for row in tiny_rows() if options.tiny else [known[key] for key in options.rows]:
            path = tiny_data(Path(made) / "tiny.npz") if options.tiny else options.folder / f"{row.data}.npz"
            found = run_row(row, load(path))
            about = {"peak_gb": round(peak_bytes() / 1e9, 2), "load_average": round(os.getloadavg()[0], 1)}
            rows.append({**found, **about, "sgemm_gflops": round(rate)})
            print(rows[-1], flush=True)
            if options.out is not None:
                run = Run(
                    "reproduction", today(), describe_machine(), versions(), {"tiny": options.tiny}, {"rows": rows}
                )
                write([*before, run], options.out)


if __name__ == "__main__":
    main()

"""Test errors of the defaults on tables, compared with the defaults of boosted trees, forests, SVC and xRFM.

    python benchmarks/tables.py FOLDER FILE.npz --out benchmarks/results-tables.json

A quarter of each table's rows is held out, stratified by class, once for each seed. A raw CSV table is ingested,
including text and gaps; then the model is fitted and predicts the held-out CSV with its recorded encoding. An npz file
has numbers, and as many test rows as it says. `auto` is a search for a model, `learned` has learned features,
`in_leaves` models in the leaves of a tree, `by_hand` is the default on features that scikit-learn encoded and
standardised, without a scaling of its own. Errors are shares of wrong labels, or for regression of the unexplained
variance (1 - R2). Every model runs alone, in a process of its own, which is ended when its time limit is reached.
"""

import argparse
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from figures import Run, add, today
from products.machine import describe_machine, versions
from sklearn.exceptions import ConvergenceWarning
from table_contenders import CONTENDERS, PEERS, RAW
from table_means import summary
from table_splits import TEST, Split, splits

_ROUNDING = 1e-9
_TINY = (RAW, "auto", "in_leaves", "svc")  # whose packages are there, and one of each kind


def measured(split: Split, names: Sequence[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """Return the errors and seconds of the contenders on one split; None for what was not done in time."""
    row: dict[str, Any] = {"data": split.name, "n_rows": len(split.train) + len(split.test), "seed": split.seed}
    for name in names:
        row[f"{name}_error"], row[f"{name}_seconds"] = _alone(name, split, folder, limit_s)
    return row


def _alone(name: str, split: Split, folder: Path, limit_s: float) -> tuple[float | None, float | None]:
    """Return error and seconds of one contender in a process of its own."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for their locks
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(name, split, folder, theirs))
    process.start()
    theirs.close()
    done = ours.poll(limit_s)
    try:
        found: tuple[float | None, float | None] = ours.recv() if done else (None, None)
    except EOFError:  # it died: out of memory
        found = None, None
    process.kill()
    process.join()
    return found


def _run(name: str, split: Split, folder: Path, pipe: Any) -> None:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        error = CONTENDERS[name](split, folder)
    pipe.send((error, round(time.perf_counter() - begun, 2)))


def shown(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return the means as a table in percent, with a star where the default is worse than the best peer."""
    peers = [f"{name}_error" for name in names if name in PEERS]
    lines = [f"{'':14s}" + "".join(f"{name:>19s}" for name in names)]
    for row in rows:
        theirs = [row[name] for name in peers if row[name] is not None]
        above = row.get(f"{RAW}_error") is not None and theirs and row[f"{RAW}_error"] > min(theirs) + _ROUNDING
        lines.append(f"{row['data']:14s}" + "".join(_cell(row, name) for name in names) + " *" * bool(above))
    return "\n".join(lines)


def _cell(row: dict[str, Any], name: str) -> str:
    error = row[f"{name}_error"]
    if error is None:
        return f"{'-':>19s}"
    return f"{error:19.2f}" if row["data"] == "mean rank" else f"{error:19.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, help="CSV and npz files, or folders of CSV files")
    parser.add_argument("--target", help="target column of CSV files (default: the last one)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--rows", type=int, help="most training rows")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a model may take (default: 900)")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="80 generated rows and one seed, to check that it runs")
    options = parser.parse_args()
    if not options.data and not options.tiny:
        parser.error("name CSV or npz files, or folders of CSV files")
    seeds, results = options.seeds[: 1 if options.tiny else None], []
    names = [name for name in options.contenders if not options.tiny or name in _TINY]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = [_tiny(folder)] if options.tiny else _files(options.data)
        for path in files:
            for split in splits(path, options.target, seeds, folder, options.rows):
                results.append(measured(split, names, folder, options.limit))
                print(results[-1], flush=True)
    means = summary(results, names)
    print(shown(means, names))
    settings = {"tiny": options.tiny, "seed": seeds, "test_share": TEST, "contenders": names}
    settings["limit_s"] = options.limit
    tables = {"means": means, "splits": results}
    add(Run("tables", today(), describe_machine(), versions(), settings, tables), options.out)


def _files(given: Sequence[Path]) -> list[Path]:
    return [path for one in given for path in (sorted(one.glob("*.csv")) if one.is_dir() else [one])]


def _tiny(folder: Path) -> Path:
    """Write a table of 80 rows with text and gaps; return its path."""
    rng = np.random.default_rng(0)
    x, word = rng.standard_normal(80), rng.choice(["a", "b", "c"], 80)
    y = (x + (word == "a") > 0.5).astype(int)
    x[::9] = np.nan
    path = folder / "made.csv"
    pd.DataFrame({"x": x, "word": word, "y": y}).to_csv(path, index=False)
    return path


if __name__ == "__main__":
    main()

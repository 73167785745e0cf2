"""Compare published systems on one store, each with the same time limit.

``--data`` names an npz to ingest; without it scikit-learn's digits are used. The result is printed as a table, and with
``--out`` written as JSON with machine and date; ``daskkern compare --out`` also plots the curves.

Run it with ``python examples/compare_systems.py``; each system takes at most the budget.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import daskkern
from daskkern.systems import compare, system


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="npz of X and y (default: digits)")
    parser.add_argument(
        "--systems",
        default="falkon,eigenpro4,n_sdca,random_kitchen_sinks",
        help="names, see daskkern systems (default: falkon,eigenpro4,n_sdca,random_kitchen_sinks)",
    )
    parser.add_argument("--columns", type=int, default=500, help="landmarks or features (default: 500)")
    parser.add_argument("--budget", type=float, default=10, help="seconds for each system (default: 10)")
    parser.add_argument("--out", type=Path, help="write the comparison there as JSON")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = options.data or folder / "digits.npz"
        if options.data is None:
            X, y = load_digits(return_X_y=True)
            np.savez(data, X=X, y=y)
        daskkern.ingest(
            data, folder / "train.zarr", split=0.25, out_test=folder / "test.zarr", scale="standard", shuffle=True
        )
        found = compare(
            str(folder / "train.zarr"),
            [system(name) for name in options.systems.split(",")],
            test=str(folder / "test.zarr"),
            budget_s=options.budget,
            columns=options.columns,
        )
    for curve in sorted(found.curves, key=lambda curve: float("inf") if curve.error is None else curve.error):
        if curve.error is None:
            print(f"{curve.system:24} {curve.reason}: {curve.problem}")
        else:
            print(f"{curve.system:24} error {curve.error:7.2%}   {curve.epochs:3} epochs   {curve.seconds:5.1f} s")
    if options.out is not None:
        found.save(options.out)
        print(f"the comparison is in {options.out}")


if __name__ == "__main__":
    main()

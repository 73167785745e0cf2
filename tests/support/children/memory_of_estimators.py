"""Run as a process of its own: a fit of an estimator with its defaults, and the peak of resident memory."""

import json
import sys

import numpy as np

from daskkern import KernelClassifier, KernelRegressor
from daskkern.backend.concurrency import compute_threads
from daskkern.training.run import fit as fitting
from tests.support.children.memory import THREADS, peak_of_process


def _planned(n: int, task: str) -> tuple[int, int]:
    """Return the peak of this process without the caller's rows, and what the fit planned."""
    rng = np.random.default_rng(0)
    X, plans, run_rank = rng.normal(size=(n, 8)), [], fitting.run_rank
    values = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)

    def spied(comm: object, task: fitting.RankTask, *rest: object) -> object:
        plans.append(task.memory)
        return run_rank(comm, task, *rest)

    fitting.run_rank = spied
    if task == "regression":
        KernelRegressor(device="cpu").fit(X, values)
    else:
        KernelClassifier(device="cpu").fit(X, np.digitize(values, [-0.5, 0.5]))
    return peak_of_process() - X.nbytes - values.nbytes, plans[0].total + plans[0].kept


if __name__ == "__main__":
    with compute_threads(THREADS):
        measured, planned = _planned(int(sys.argv[2]), sys.argv[1])
    print(json.dumps({"measured": measured, "planned": planned}))

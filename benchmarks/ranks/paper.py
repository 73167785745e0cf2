"""What the model says of many ranks: steps, efficiencies, limits, and the planned memory of a rank."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskkern.basis import AllRows
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.settings import FitSettings
from ranks.model import (
    Constants,
    Link,
    Machine,
    Step,
    gpu_of_data_sheets,
    most_ranks,
    predicted,
    predicted_grid,
    with_link,
)

RANKS = (64, 128, 256, 512, 1000)
STEP = Step()
STEPS = {
    "each epoch, bytes": STEP,
    "each epoch, float32": replace(STEP, feature_bytes=4),
    "once, then kept": replace(STEP, feature_bytes=0),
}
"""How rows reach the ranks: from rank to rank in each epoch, or in the first one, after which all keep them."""
GPUS = (8, 16, 32, 64)
AIMS = (("CPU cores, 10 Gb/s", 256, 0.8), ("GPUs, by data sheets", 64, 0.6))
"""The aims: kind of rank, how many, and least efficiency."""
_HELD_GB = 4.0
"""Memory of a rank in which it cannot keep all rows."""


def entry_seconds(step: Step = STEP, m: int = 1024, p: int = 4096) -> float:
    """Return the seconds of a kernel entry with its product by one core, for rows of d features; the least of 5."""
    rng = np.random.default_rng(0)
    X, Z = (rng.standard_normal((n, step.d)).astype(np.float32) for n in (m, p))
    A = rng.standard_normal((p, step.c)).astype(np.float32)
    kernel = Gaussian(step.d**0.5)
    points = kernel.points(Z)
    taken = []
    for _ in range(6):  # the first compiles
        begun = time.perf_counter()
        kernel.matvec(X, points, A, threads=1)
        taken.append(time.perf_counter() - begun)
    return min(taken[1:]) / (m * p)


def machines(entry_s: float, overhead_s: float, constants: Constants) -> list[Machine]:
    """Return the kinds of ranks: cores as measured, on three networks, and GPUs of data sheets."""
    core = Machine("CPU cores, 10 Gb/s", entry_s, overhead_s, constants, Link(1.25e9, 1e-4), constants)
    return [
        core,
        with_link(core, "CPU cores, 1 Gb/s", Link(1.25e8, 1e-4)),
        with_link(core, "CPU cores, 10 Gb/s, 2 ms", Link(1.25e9, 2e-3)),
        gpu_of_data_sheets(constants),
    ]


def expected(kinds: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return a row for each kind of rank, way of the rows, and number of ranks."""
    return [
        {"rows_sent": sent, **predicted(machine, step, n_ranks)}
        for machine in kinds
        for sent, step in STEPS.items()
        for n_ranks in (GPUS if machine.rows_apart else RANKS)
    ]


def limits(kinds: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return up to how many ranks each kind keeps an efficiency of 80 and of 60%."""
    return [
        {
            "machine": machine.name,
            "rows_sent": sent,
            "n_ranks_at_80_percent": most_ranks(machine, step, 0.8),
            "n_ranks_at_60_percent": most_ranks(machine, step, 0.6),
        }
        for machine in kinds
        for sent, step in STEPS.items()
    ]


def grids(kinds: Sequence[Machine], ranks: Sequence[int] = (16, 64, 256)) -> list[dict[str, Any]]:
    """Return the step of the best number of groups, and of one group, for models that are small against the ranks."""
    rows = []
    for machine in kinds:
        if machine.rows_apart:
            continue
        for p in (2_000, 20_000, STEP.p):
            step = replace(STEP, p=p)
            for n_ranks in ranks:
                counts = [groups for groups in range(1, n_ranks + 1) if n_ranks % groups == 0]
                times = {groups: predicted_grid(machine, step, n_ranks, groups) for groups in counts}
                best = min(times, key=lambda groups: times[groups])
                row = {"machine": machine.name, "p": p, "n_ranks": n_ranks, "n_groups": best}
                rows.append({**row, "one_ms": round(1e3 * times[1], 3), "best_ms": round(1e3 * times[best], 3)})
    return rows


def aims(kinds: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return whether the aims are met."""
    known = {machine.name: machine for machine in kinds}
    rows = []
    for name, n_ranks, least in AIMS:
        for sent, step in STEPS.items():
            share = predicted(known[name], step, n_ranks)["efficiency_share"]
            row = {"machine": name, "n_ranks": n_ranks, "rows_sent": sent, "aim_share": least}
            rows.append({**row, "efficiency_share": share, "met": share >= least})
    return rows


def memory(ranks: Sequence[int] = (64, 256, 1000), step: Step = STEP) -> list[dict[str, Any]]:
    """Return the planned memory of one rank of a fit with all p rows as centres, and its largest items."""
    X = np.broadcast_to(np.zeros((1, step.d), np.float32), (step.p, step.d))
    info = SourceInfo(step.p, step.d, "regression", None, Scaling(), None, step.c, False)
    source = ArraySource(X, np.broadcast_to(np.zeros(step.c), (step.p, step.c)), None, info)
    settings = FitSettings(Gaussian(28.0), Squared(), AllRows(), EigenPro(), 0.0, 10, step.m, device="cpu")
    rows = []
    for n_ranks in ranks:
        plan = upper_bound_plan(source, settings, n_ranks, 1, int(_HELD_GB * 1e9))
        largest = sorted(plan.items, key=lambda item: -item[1])[:4]
        rows.append(
            {
                "n_ranks": n_ranks,
                "planned_gb": round(plan.total / 1e9, 3),
                "all_rows_gb": round(step.p * (step.d + step.c + 4) * 4 / 1e9, 3),
                "largest": ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in largest),
            }
        )
    return rows

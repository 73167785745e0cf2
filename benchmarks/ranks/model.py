"""A model of the time of sums and steps on ranks that share cores, or have cores of their own, with links of a rate.

A sum of n bytes takes

    crossings * (latency + delay) + messages * message + bytes * copy + line / rate,

where `messages` and `bytes` are those of all ranks per core where ranks share cores; with a core each, half of those
that the busiest rank sends and receives, since the constants count both ends. `line` are the bytes that go through the
busiest link one after the other. A step takes its computing, its sums, and the packing and copying of its batch; the
batch travels meanwhile, so that its time on the link counts only where it is longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from daskkern.cluster.collectives.allreduce import Way
from daskkern.cluster.collectives.sum_costs import cost_of_sum, way_of_sum
from ranks.sums import SIZES

DIRECTIONS = 160
"""Damped directions q of the preconditioner."""
_PIECE = 1 << 20
_PREPARED_S = 3e-10
"""Seconds of a core for a byte of a row in float32 that is prepared for a product; see
:mod:`daskkern.training.planning.grids`."""
_LEAST_S = np.array([1e-5, 1e-5, 1e-11])


@dataclass(frozen=True)
class Link:
    """What is between two hosts: bytes per second, infinite if 0, and seconds of delay."""

    rate: float = 0.0
    delay_s: float = 0.0

    def seconds(self, n_bytes: float) -> float:
        return n_bytes / self.rate if self.rate else 0.0


@dataclass(frozen=True)
class Constants:
    """Seconds of a crossing, of a message (both ends), and of a byte that is packed, copied and unpacked."""

    latency_s: float
    message_s: float
    copy_s: float

    def row(self) -> dict[str, float]:
        """Return them as figures."""
        rate = 1e-6 / self.copy_s if self.copy_s else 0.0
        names = ("latency_ms", "message_ms", "copying_mb_per_s")
        return dict(
            zip(names, (round(1e3 * self.latency_s, 4), round(1e3 * self.message_s, 4), round(rate, 1)), strict=True)
        )


@dataclass(frozen=True)
class Step:
    """The sizes of a step and of the model: m rows of d features, p columns, c outputs.

    A feature travels in `feature_bytes`; 0 where every rank keeps all rows in memory, after the first epoch.
    """

    p: int = 1_000_000
    m: int = 5_000
    d: int = 784
    c: int = 10
    feature_bytes: int = 1

    @property
    def batch_bytes(self) -> float:
        """Bytes of the rows of a batch with their labels; none where the ranks keep all rows."""
        return float(self.m * (self.d * self.feature_bytes + 1)) if self.feature_bytes else 0.0

    @property
    def sums(self) -> tuple[int, ...]:
        """Bytes of the sums of a step of EigenPro: scores (m, c) and projected gradient (q, c), float64."""
        return 8 * self.m * self.c, 8 * DIRECTIONS * self.c

    def sums_of_groups(self, n_ranks: int, groups: int) -> list[tuple[int, int]]:
        """Ranks and bytes of the sums of a step in so many groups: scores and projected gradient within a group, the
        gradient of a rank's columns, in float32, across groups."""
        each, rows = n_ranks // groups, -(-self.m // groups)
        within = [(each, 8 * rows * self.c), (each, 8 * DIRECTIONS * self.c)]
        return within if groups == 1 else [*within, (groups, 4 * -(-self.p // each) * self.c)]


@dataclass(frozen=True)
class Machine:
    """A kind of rank: seconds of a kernel entry, of the rest of a step, constants of its messages, and its link."""

    name: str
    entry_s: float
    overhead_s: float
    constants: Constants
    link: Link
    rows: Constants
    """Constants of the messages with rows, where they go another way than sums."""
    rows_apart: bool = False
    """Whether packing and unpacking of rows overlaps with computing, on cores that computing does not use."""


def shared_sum(way: Way, n_ranks: int, nbytes: int, constants: Constants, link: Link, cores: int) -> float:
    """Return the seconds of a sum of ranks that share `cores` cores."""
    cost = cost_of_sum(way, n_ranks, nbytes)
    work = cost.all_messages * constants.message_s + cost.all_bytes * constants.copy_s
    waits = cost.crossings * (constants.latency_s + link.delay_s)
    return waits + work / min(cores, n_ranks) + link.seconds(cost.line_bytes)


def own_sum(way: Way, n_ranks: int, nbytes: int, constants: Constants, link: Link) -> float:
    """Return the seconds of a sum of ranks that have a core each."""
    cost = cost_of_sum(way, n_ranks, nbytes)
    work = cost.messages * constants.message_s / 2 + cost.n_bytes * constants.copy_s
    return cost.crossings * (constants.latency_s + link.delay_s) + work + link.seconds(cost.line_bytes)


def fitted(rows: Sequence[dict[str, Any]], cores: int) -> Constants:
    """Fit the constants to the measured sums of ranks that share `cores` cores."""
    terms, taken = [], []
    for row in rows:
        cost = cost_of_sum(row["way"], row["n_ranks"], SIZES[row["size"]])
        shared = min(cores, row["n_ranks"])
        terms.append([cost.crossings, cost.all_messages / shared, cost.all_bytes / shared])
        taken.append(1e-3 * row["median_ms"])
    A, t = np.array(terms, float), np.array(taken)
    scale = nnls(A / t[:, None], np.ones(len(t)))[0]
    start = np.log(np.maximum(scale, _LEAST_S))

    def errors(logs: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(A @ np.exp(logs) / t)
        return found

    # An error of the ratio counts, whichever is larger, and outliers count less: others may have used the cores.
    return Constants(*map(float, np.exp(least_squares(errors, start, loss="soft_l1", f_scale=0.3).x)))


def shared_step(row: dict[str, Any], constants: Constants, link: Link, cores: int) -> float:
    """Return the seconds of a step by the model, from the processor time of its computing and what it sends."""
    n, shared = row["n_ranks"], min(cores, row["n_ranks"])
    sums = sum(
        shared_sum(way_of_sum(n, nbytes, n, n), n, nbytes, constants, link, cores) for nbytes in row["sums_bytes"]
    )
    row_bytes = 1e6 * row["rows_mb"]
    rows = (n - 1) * (row["n_row_messages"] * constants.message_s + row_bytes * constants.copy_s) / shared
    return max(1e-3 * row["computing_ms"] * n / shared + sums + rows, link.seconds(2 * row_bytes))


def predicted(machine: Machine, step: Step, n_ranks: int) -> dict[str, Any]:
    """Return the parts of a step on `n_ranks` ranks with a core (or GPU) each, and its parallel efficiency."""
    computing = step.m * step.p * machine.entry_s / n_ranks
    ways = [way_of_sum(n_ranks, nbytes, n_ranks, n_ranks) for nbytes in step.sums]
    sums = sum(
        own_sum(way, n_ranks, nbytes, machine.constants, machine.link)
        for way, nbytes in zip(ways, step.sums, strict=True)
    )
    pieces = float(np.ceil(step.batch_bytes / _PIECE))
    ends = 3 / 2  # a rank receives a batch, and sends it to two others: three of the two ends of a message
    work = ends * (pieces * machine.rows.message_s + step.batch_bytes * machine.rows.copy_s)
    travel = machine.link.seconds(2 * step.batch_bytes)
    busy = computing + machine.overhead_s + sums + (0.0 if machine.rows_apart else work)
    whole = max(busy, travel, work)
    parts = {"computing": computing, "rest of a step": machine.overhead_s, "sums": sums, "rows": work}
    limit = "rows on the link" if travel > busy else "rows" if work > busy else max(parts, key=lambda name: parts[name])
    return {
        "machine": machine.name,
        "n_ranks": n_ranks,
        "ways": ", ".join(ways),
        "computing_ms": round(1e3 * computing, 3),
        "rest_ms": round(1e3 * machine.overhead_s, 3),
        "sums_ms": round(1e3 * sums, 3),
        "rows_ms": round(1e3 * work, 3),
        "rows_on_link_ms": round(1e3 * travel, 3),
        "step_ms": round(1e3 * whole, 3),
        "efficiency_share": round(computing / whole, 3),
        "read_mb_per_second": round(1e-6 * step.batch_bytes / whole, 1),
        "largest_part": limit,
    }


def predicted_grid(machine: Machine, step: Step, n_ranks: int, groups: int) -> float:
    """Return the seconds of a step in so many groups of ranks, without the packing of rows: every rank gets all of
    them with any number of groups. Each group applies the preconditioner to all columns."""
    each, rows = n_ranks // groups, step.m / groups
    computing = rows * step.p / each * machine.entry_s
    prepared = rows * step.d * 4 * _PREPARED_S
    repeated = step.p / each * DIRECTIONS * machine.entry_s * 2 * step.c / (2 * step.d + step.c)
    constants, link = machine.constants, machine.link
    sums = sum(
        own_sum(way_of_sum(size, nbytes, size, size), size, nbytes, constants, link)
        for size, nbytes in step.sums_of_groups(n_ranks, groups)
    )
    return computing + prepared + repeated + sums


def most_ranks(machine: Machine, step: Step, least: float) -> int:
    """Return the largest number of ranks, up to 65,536, whose efficiency is at least `least`; 0 for none."""
    low, high = 0, 65_536
    while low < high:
        middle = (low + high + 1) // 2
        if predicted(machine, step, middle)["efficiency_share"] >= least:
            low = middle
        else:
            high = middle - 1
    return low


def gpu_of_data_sheets(rows: Constants) -> Machine:
    """Return a GPU of data sheets: H100 SXM, 67 TFLOP/s in float32, of which half is assumed; links of 400 Gb/s.

    A message of NCCL takes 20 us and the launches of a step 0.5 ms: assumed, like the rest not measured here. Rows go
    through the hosts, by Dask's connections with the constants `rows`.
    """
    entry = 2 * (Step().d + Step().c) / (0.5 * 67e12)
    nccl = Constants(20e-6, 5e-6, 0.0)
    return Machine("GPUs, by data sheets", entry, 5e-4, nccl, Link(50e9, 0.0), rows, rows_apart=True)


def with_link(machine: Machine, name: str, link: Link) -> Machine:
    """Return the machine on another network."""
    return replace(machine, name=name, link=link)

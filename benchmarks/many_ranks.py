"""Many ranks on links of a given rate and delay: counts against formulas, times against a model, and what it says.

    python -m benchmarks many_ranks --out benchmarks/results-many-ranks.json --plot benchmarks/results-many-ranks.png

Ranks are processes of this machine, each on a host of its own, a loopback address; `ranks/relay.py` carries what they
send each other, with a rate and a delay for each host's link. Neither root nor a kernel with traffic shaping is needed.
The ranks share the cores of this machine: what is measured is what their communication costs and what they send, not
how much faster many cores compute. The constants of the model are fitted to sums of ranks that connect directly; with
the link's rate and delay it must then explain the others. With a core for each rank it says what follows for 64 to
1,000 ranks; GPUs have the constants of data sheets.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collectives import PATIENT
from figures import Run, add, today
from products.machine import OthersLoad, cpu_count, describe_machine, versions
from ranks import paper
from ranks.hosts import free_net, hosts
from ranks.links import measured_links
from ranks.model import Constants, Link, fitted, shared_step, shared_sum
from ranks.relay import LinkSettings
from ranks.steps import prepared_task, row_of_steps
from ranks.sums import SIZES, Case, measure_sums, rows_of_sums
from shared_reading import images

from daskkern.cluster.gang.gang import run_gang
from daskkern.training.run.rank import RankTask

DIRECT = "direct"
LINKS = {
    "relay": Link(),
    "relay, 0.5 ms": Link(0.0, 5e-4),
    "relay, 2 ms": Link(0.0, 2e-3),
    "1 Gb/s": Link(1.25e8, 0.0),
    "1 Gb/s, 0.5 ms": Link(1.25e8, 5e-4),
    "1 Gb/s, 2 ms": Link(1.25e8, 2e-3),
}
ALL: list[Case] = [(way, size) for size in SIZES for way in ("star", "doubling", "reduce_scatter", "halving")]
SOME: list[Case] = [("star", "8 KB"), ("doubling", "8 KB"), ("doubling", "200 KB"), ("halving", "4 MB")]
_MOST_DIRECT = 16
"""Ranks of the largest cluster without the relay, from which the constants are found."""


def nothing(comm: Any, payload: Any, context: Any) -> None:
    """Be a rank, and end."""
    del payload, context
    comm.barrier()


def others(seconds: float = 2.0) -> float:
    """Return the number of cores that other processes use, while this one waits. Ranks that run would be among them."""
    load = OthersLoad()
    time.sleep(seconds)
    return round(load.cores(), 2)


class Measured:
    """The tables of a run, which grow cluster by cluster."""

    def __init__(self, work: tuple[RankTask, int], seconds: float) -> None:
        self.sums: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.gangs: list[dict[str, Any]] = []
        self._work, self._seconds = work, seconds

    def direct(self, n_ranks: int) -> None:
        """Measure ranks that connect to each other directly."""
        with hosts(n_ranks, relayed_links=False) as (client, _):
            self._one(client, n_ranks, DIRECT, ALL)

    def relayed(self, n_ranks: int, links: dict[str, Link]) -> None:
        """Measure ranks whose links are those of the relay, one after the other."""
        with hosts(n_ranks, relayed_links=True) as (client, control):
            assert control is not None
            for name, link in links.items():
                control.set(LinkSettings(link.rate, link.delay_s))
                self._one(client, n_ranks, name, SOME)

    def _one(self, client: Any, n_ranks: int, link: str, cases: list[Case]) -> None:
        if link in (DIRECT, "relay"):
            begun = time.perf_counter()
            run_gang(client, nothing, None, name="start", settings=PATIENT)
            self.gangs.append({"n_ranks": n_ranks, "link": link, "gang_s": round(time.perf_counter() - begun, 3)})
        ranks = run_gang(client, measure_sums, (cases, self._seconds), name="sums", settings=PATIENT)
        self.sums += rows_of_sums(n_ranks, link, cases, ranks)
        self.steps.append(row_of_steps(client, self._work, n_ranks, link, PATIENT))
        print(*self.sums[-len(cases) :], self.steps[-1], sep="\n", flush=True)


def explained(found: Measured, constants: Constants, cores: int) -> list[dict[str, Any]]:
    """Add the time by the model to every row, and return the errors of each link."""
    known = {DIRECT: Link(), **LINKS}
    for row in found.sums:
        link = known[row["link"]]
        seconds = shared_sum(row["way"], row["n_ranks"], SIZES[row["size"]], constants, link, cores)
        row["model_ms"] = round(1e3 * seconds, 3)
        row["model_error"] = round(row["model_ms"] / row["median_ms"] - 1, 3)
    for row in found.steps:
        row["model_ms"] = round(1e3 * shared_step(row, constants, known[row["link"]], cores), 3)
        row["model_error"] = round(row["model_ms"] / row["step_ms"] - 1, 3)
    errors = []
    for name in dict.fromkeys(row["link"] for row in found.sums):
        of_sums, of_steps = (
            [abs(row["model_error"]) for row in rows if row["link"] == name] for rows in (found.sums, found.steps)
        )
        errors.append(
            {
                "link": name,
                "sums_median_error": round(statistics.median(of_sums), 3),
                "sums_largest_error": max(of_sums),
                "steps_median_error": round(statistics.median(of_steps), 3),
                "steps_largest_error": max(of_steps),
            }
        )
    return errors


def counts(found: Measured) -> list[dict[str, Any]]:
    """Return for each number of ranks whether what was read and sent is what the formulas say."""
    rows = []
    for n_ranks in dict.fromkeys(row["n_ranks"] for row in found.steps):
        steps = [row for row in found.steps if row["n_ranks"] == n_ranks]
        sums = [row for row in found.sums if row["n_ranks"] == n_ranks]
        pairs = [("n_messages", "n_messages_by_formula"), ("sent_mb", "sent_by_formula_mb")]
        rows.append(
            {
                "n_ranks": n_ranks,
                "read_share_of_store": [row["read_share_of_store"] for row in steps],
                "n_measured": len(steps) + len(sums),
                "n_equal_to_formula": sum(all(row[a] == row[b] for a, b in pairs) for row in [*steps, *sums]),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each algorithm, size and link")
    parser.add_argument("--rows", type=int, default=22_000)
    parser.add_argument("--batch", type=int, default=1_100)
    parser.add_argument(
        "--tiny", action="store_true", help="three ranks, few rows and two links, to check that it runs"
    )
    options = parser.parse_args(argv)
    links = LINKS
    if options.tiny:
        options.workers, options.seconds, options.rows, options.batch = [3], 0.02, 1_000, 200
        links = {name: LINKS[name] for name in ("relay", "1 Gb/s, 0.5 ms")}
    cores, before = cpu_count(), others()
    between = measured_links(free_net(), _validated(), 0.1 if options.tiny else 0.8)
    entry_s = paper.entry_seconds(m=64, p=128) if options.tiny else paper.entry_seconds()
    folder = Path(tempfile.mkdtemp(prefix="daskkern-bench-"))
    try:
        found = Measured(prepared_task(images(folder / "images", options.rows), options.batch), options.seconds)
        for n_ranks in options.workers:
            if n_ranks <= _MOST_DIRECT:
                found.direct(n_ranks)
            found.relayed(n_ranks, links)
    finally:
        shutil.rmtree(folder)
    constants = fitted([row for row in found.sums if row["link"] == DIRECT], cores)
    errors = explained(found, constants, cores)
    overhead_s = 1e-3 * min(row["computing_ms"] for row in found.steps)
    kinds = paper.machines(entry_s, overhead_s, constants)
    tables = {
        "links": between,
        "sums": found.sums,
        "steps": found.steps,
        "gangs": found.gangs,
        "counts": counts(found),
        "constants": [{**constants.row(), "entry_ns": round(1e9 * entry_s, 3), "rest_ms": round(1e3 * overhead_s, 3)}],
        "errors": errors,
        "expected": paper.expected(kinds),
        "limits": paper.limits(kinds),
        "grids": paper.grids(kinds),
        "aims": paper.aims(kinds),
        "memory": paper.memory(),
        "whole": [{"others_load_before_cores": before, "others_load_after_cores": others()}],
    }
    print(*tables["constants"], *errors, *tables["limits"], *tables["aims"], sep="\n")
    shown = {"n_rows": options.rows, "n_batch_rows": options.batch, "seconds_each": options.seconds}
    step = {"p": paper.STEP.p, "m": paper.STEP.m, "d": paper.STEP.d, "c": paper.STEP.c}
    add(Run("many_ranks", today(), describe_machine(), versions(), {**shown, **step}, tables), options.out)


def _validated() -> list[LinkSettings]:
    fast = [LinkSettings(1.25e9, delay_s) for delay_s in (0.0, 2e-3)]
    return [LinkSettings(link.rate, link.delay_s) for link in LINKS.values()] + fast


if __name__ == "__main__":
    main()

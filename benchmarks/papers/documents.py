"""The tables of docs/papers.md: each statement, algorithm, figure and table of five documents, and what ours is.

`documents.toml` lists them; figures of theirs are those of `rows.py`, figures of ours those of the JSON file of
reproductions. `python benchmarks/docs_tables.py` writes the page.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from figures import Row, read
from pages import table, text

from papers.curves import curves_in_words
from papers.form import PaperRow
from papers.rows import ROWS

FILE = Path(__file__).with_name("documents.toml")
FIGURES = Path(__file__).resolve().parents[1] / "results-reproduction.json"
_QUIET = 3.0
"""The most that programs wanted to run at the end of a row, our own and that of its second core among them."""
_HEADER = ["statement", "ours is", "command", "theirs", "ours", "data: theirs, ours", "why they differ, or why none"]


@dataclass(frozen=True)
class Entry:
    """A row of a document's table. `key` is that of a reproduced row, or empty; then `why` says why."""

    what: str
    ours: str
    key: str
    theirs: str
    data: str
    why: str


@cache
def documents() -> dict[str, tuple[str, tuple[Entry, ...]]]:
    """Return the title and the rows of each document, by the name of its block."""
    found = tomllib.loads(FILE.read_text())["document"]
    return {each["key"]: (each["title"], tuple(Entry(*row) for row in each["rows"])) for each in found}


def document_table(name: str) -> list[str]:
    """Return the lines of a document's table."""
    known = {row.key: row for row in ROWS}
    measured = {row["key"]: row for run in read(FIGURES) for row in run.tables["rows"]}
    _, entries = documents()[name]
    return table(_HEADER, [_cells(each, known.get(each.key), measured.get(each.key)) for each in entries])


def _cells(entry: Entry, paper: PaperRow | None, row: Row | None) -> list[str]:
    if paper is None:
        return [entry.what, entry.ours, "", entry.theirs, "", entry.data, entry.why]
    why = " ".join([*paper.differences, *([entry.why] if entry.why else [])])
    ours = "not measured yet" if row is None else ours_in_words(row)
    data = ", ".join(name for name in (paper.paper_data, paper.data.replace("_", "-")) if name)
    return [entry.what, entry.ours, f"`--rows {entry.key}`", _theirs(paper), ours, data, why]


def _theirs(paper: PaperRow) -> str:
    if paper.paper_words:
        return paper.paper_words
    if paper.unit in ("orders", "peer"):
        return "curves without numbers" if paper.unit == "orders" else "no figure"
    if paper.unit in ("loss", "steps"):
        return "no steps are printed" if paper.paper_loss is None else text(paper.paper_loss)
    if paper.unit == "epochs":
        return f"{paper.paper_epochs} epochs"
    if paper.unit == "seconds":
        return f"{text(paper.paper_setup_seconds)} s, and {text(paper.paper_epoch_seconds)} s an epoch"
    seconds = "" if paper.paper_seconds is None else f" in {text(paper.paper_seconds)} s"
    return f"{paper.paper_error:.2%}{seconds}"


def ours_in_words(row: Row) -> str:
    """Return our figures of a row."""
    if row["unit"] == "loss":
        return f"{row['our_loss']:.3g}"
    if row["unit"] == "steps":
        return steps_in_words(row)
    if row["unit"] == "epochs":
        n, most = row["n_our_epochs"], row["n_epochs_run"]
        counted = f"more than {most} epochs" if n is None else "1 epoch" if n == 1 else f"{n} epochs"
        return f"{counted} to the error of the exact solution, counted on held-out rows; {_two_epochs(row)}"
    if row["unit"] in WORDS:
        return WORDS[row["unit"]](row)
    if row["unit"] == "seconds":
        return phases_in_words(row)
    return f"{row['our_error']:.2%} in {seconds_in_words(row)}"


def seconds_in_words(row: Row) -> str:
    """Return the seconds of a fit: of the clock, or of processor time where other programs used the same cores."""
    if busy(row) and "our_processor_seconds" in row:
        return f"{text(row['our_processor_seconds'])} s of processor time"
    return f"{text(row['our_seconds'])} s{busy(row)}"


def phases_in_words(row: Row) -> str:
    """Return the seconds of set-up and epoch: of processor time, or of the clock in older figures."""
    kind = "processor_seconds" if "our_epoch_processor_seconds" in row else "seconds"
    setup, epoch = (text(row[f"our_{phase}_{kind}"]) for phase in ("setup", "epoch"))
    remark = " of processor time" if kind == "processor_seconds" else busy(row)
    return f"{setup} s, and {epoch} s an epoch{remark}"


def busy(row: Row) -> str:
    """Return a remark on seconds that were measured while other programs used the same cores, else nothing."""
    return " while other programs ran" if row.get("load_average", 0) > _QUIET else ""


def _two_epochs(row: Row) -> str:
    """Return errors on test rows: after the epoch that held-out rows choose, after the best one, and the exact one."""
    chosen = (
        f"{row['our_error']:.2%} after the epoch that these choose, {row['n_chosen_epochs']} of {row['n_epochs_run']}"
    )
    best = f"{row['best_test_error']:.2%} after the best for test rows, {row['n_best_test_epochs']}"
    return f"test errors are {chosen}, {best}, and {row['exact_error']:.2%} for the exact solution"


def steps_in_words(row: Row) -> str:
    """Return for each kernel by what our steps are longer than the paper's, for the squared loss and its hinge."""
    both = zip(row["kernels"], row["squared_step_ratio"], row["squared_hinge_step_ratio"], strict=True)
    each = "; ".join(f"{kernel} {one:.2g} and {other:.2g}" for kernel, one, other in both)
    rule = ", ".join(f"{ratio:.3g}" for ratio in row.get("rule_step_ratio", ()))
    said = f"the rule's steps are to each other as {rule}; " if rule else ""
    return f"{said}{each} of the rule's step, squared and squared hinge loss"


def orders_in_words(row: Row) -> str:
    """Return for each order of the rows how far the objective is above the least one, after so many epochs."""
    each = "; ".join(f"{order} {_gaps(row[f'{order}_gap_loss'])}" for order in ("independent", "fixed", "fresh"))
    return f"{each}: the objective less the least one, after {', '.join(map(str, row['n_epochs_each']))} epochs"


def _gaps(values: list[float]) -> str:
    return ", ".join(f"{value:.2g}" for value in values)


def peer_in_words(row: Row) -> str:
    """Return the error and the time of both, and their support vectors."""
    ours, peers = (
        f"{row[f'{name}_error']:.2%} in {text(row[f'{name}_seconds'])} s with {row[f'n_{name}_support_vectors']:,} "
        "support vectors"
        for name in ("our", "peer")
    )
    return f"{ours}; {row['peer']} {peers}{busy(row) and ', all' + busy(row)}"


def costs_in_words(row: Row) -> str:
    """Return the mean cost of a test row, and the errors, of three ways to predict."""
    ways = (
        f"{row['plain_cost']:.3f} without costs and {row['plain_error']:.2%} errors",
        f"{row['our_cost']:.3f} with them and {row['our_error']:.2%}",
        f"{row['cheapest_cost']:.3f} for the cheapest class by the probabilities of the first",
    )
    return f"mean cost {', '.join(ways)}"


WORDS: dict[str, Callable[[Row], str]] = {
    "orders": orders_in_words,
    "peer": peer_in_words,
    "costs": costs_in_words,
    "curves": curves_in_words,
}
"""What our figures are in words, by the unit of a row."""

"""The page of the reproduction: the papers' figures, ours where measured, and the known differences."""

from collections.abc import Callable, Iterator
from pathlib import Path

from figures import Row, Run, read
from pages import origin, table, text

from papers.documents import WORDS, phases_in_words, steps_in_words
from papers.form import PaperRow
from papers.rows import ROWS, TABLES

FILE = Path(__file__).resolve().parents[1] / "results-reproduction.json"


def page(path: Path = FILE) -> str:
    """Return the page, Markdown. Without the file it shows the papers' figures and how to measure ours."""
    runs = read(path) if path.exists() else []
    found = {row["key"]: (row, run) for run in runs for row in run.tables["rows"]}
    lines = [
        "# Papers, run again",
        "",
        "Rows of tables in the papers that daskkern is based on, run on the available data with the same kernel, loss,",
        "epochs and landmarks. Data and machines are not theirs, so a figure alone proves nothing;",
        "known differences are listed below each table. Their figures are as printed, ours are single runs.",
        "",
        "    python -m benchmarks reproduce FOLDER --out benchmarks/results-reproduction.json",
        "",
    ]
    lines += [_state(runs, len(found)), ""]
    for key, title in TABLES.items():
        rows = [row for row in ROWS if row.table == key]
        lines += [f"## {title}", "", *_table(rows, {name: row for name, (row, _) in found.items()}), ""]
        lines += [*_differences(rows), ""]
    picture = path.with_suffix(".png")
    if picture.exists():
        lines += [f"![The papers' errors next to ours, row by row]({picture.name})", ""]
    return "\n".join(lines)


def _state(runs: list[Run], n_found: int) -> str:
    if not runs:
        return "**Ours are not measured yet**: the command above does that, in a few minutes per row."
    rest = f" {len(ROWS) - n_found} rows are not measured yet." if n_found < len(ROWS) else ""
    return f"Ours: {' '.join(dict.fromkeys(origin(run) for run in runs))}{rest} [JSON]({FILE.name})"


def _table(rows: list[PaperRow], found: dict[str, Row]) -> list[str]:
    if rows[0].unit == "epochs":
        header = ["row", "their epochs", "our epochs", "error of the exact solution here"]
        header += ["epoch chosen on held-out rows: its error on test rows", "best epoch on test rows: its error"]
        return table(header, [[row.what, row.paper_epochs, *_our_epochs(found.get(row.key))] for row in rows])
    if rows[0].unit == "loss":
        return table(["row", "their loss", "our loss"], [[row.what, *_losses(row, found.get(row.key))] for row in rows])
    if rows[0].unit == "steps":
        return table(["row", "data", "our steps"], [[row.what, row.data, _steps(found.get(row.key))] for row in rows])
    if rows[0].unit in WORDS:
        words = WORDS[rows[0].unit]
        cells = [[row.what, row.data.replace("_", "-"), _said(words, found.get(row.key))] for row in rows]
        return table(["row", "data", "ours"], cells)
    if rows[0].unit == "seconds":
        header = ["row", "data", "their set-up, s", "their epoch, s", "ours"]
        return table(header, [[row.what, *_seconds(row, found.get(row.key))] for row in rows])
    header = ["row", "data: theirs, ours", "their error", "our error", "their time, s", "our time, s"]
    return table(header, [[row.what, *_errors(row, found.get(row.key))] for row in rows])


def _said(words: Callable[[Row], str], row: Row | None) -> str:
    return "" if row is None else words(row)


def _our_epochs(row: Row | None) -> Iterator[str]:
    if row is None:
        yield from [""] * 4
        return
    yield f"more than {row['n_epochs_run']}" if row["n_our_epochs"] is None else str(row["n_our_epochs"])
    yield f"{row['exact_error']:.2%}"
    yield f"{row['n_chosen_epochs']}: {row['our_error']:.2%}"
    yield f"{row['n_best_test_epochs']}: {row['best_test_error']:.2%}"


def _seconds(paper: PaperRow, row: Row | None) -> Iterator[str]:
    yield paper.data.replace("_", "-")
    yield from (text(getattr(paper, f"paper_{name}_seconds")) for name in ("setup", "epoch"))
    yield _said(phases_in_words, row)


def _losses(paper: PaperRow, row: Row | None) -> Iterator[str]:
    yield paper.paper_words or text(paper.paper_loss)
    yield "" if row is None else f"{row['our_loss']:.3g}"


def _steps(row: Row | None) -> str:
    return "" if row is None else steps_in_words(row)


def _errors(paper: PaperRow, row: Row | None) -> Iterator[str]:
    yield f"{paper.paper_data}, {paper.data.replace('_', '-')}"
    yield "" if paper.paper_error is None else f"{paper.paper_error:.2%}"
    yield "" if row is None else f"{row['our_error']:.2%}"
    yield "" if paper.paper_seconds is None else text(paper.paper_seconds)
    yield "" if row is None else text(row["our_seconds"])


def _differences(rows: list[PaperRow]) -> list[str]:
    """Return a line for each difference, once for all rows of a table."""
    return [f"- {sentence}" for sentence in dict.fromkeys(sentence for row in rows for sentence in row.differences)]


if __name__ == "__main__":
    print(page(), end="")

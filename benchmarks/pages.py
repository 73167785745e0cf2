"""The page of measured figures, generated from every JSON file in this folder (figures.py has the format).

python benchmarks/pages.py > benchmarks.md
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import Row, Run, read
from table_means import OVER_ALL, in_percent, merged, of_all

FOLDER = Path(__file__).resolve().parent
NOTES = {
    "results-time-to-error": "Whole seconds are those of the process: imports, reading, fit and prediction.",
    "results-scaling": "GB are those of one process, minus its resident size before the fit.",
    "results-cpu-2-cores": "`train.zarr` is Fashion-MNIST, 60,000 x 784, `ctrain.zarr` covtype, 464,809 x 54, scaled.",
    "results-tables": "Wrong labels of held-out rows, or the variance that is not explained, as means over the seeds; "
    "a dash lacks a split or was not tried. Means and ranks are of the tables that all were tried on.",
    "results-choices": "Error on held-out rows and seconds of the whole fit; one run each.",
}
TITLES = {
    "results-time-to-error": "Time to error, compared with other libraries",
    "results-scaling": "Time and memory as a fit grows",
    "results-bigger-than-memory": "Data bigger than memory",
    "results-stages": "From files to predictions, stage by stage",
    "results-regressions": "Three sizes relative to np.matmul, run after run",
    "results-learned-features": "A metric learned from all rows",
    "results-cpu-2-cores": "Fits from the command line",
    "results-kernel-products-cpu-2-cores": "Kernel products against peers",
    "results-choices": "Kernel, landmarks, solver: one choice at a time",
    "results-tables": "Tables, compared with boosted trees, forests, SVC and xRFM",
    "results-recovery": "Recovery from faults",
    "results-collectives": "Allreduce",
    "results-wires": "A sum of two ranks by other wires",
    "results-many-ranks": "Many ranks",
    "results-threads": "Predictions with all threads relative to one",
    "results-overhead": "Two ranks compared with one process",
    "results-monitoring": "Cost of monitoring",
    "results-soak": "Fits with faults",
    "results-many-tables": "Small regression tables",
    "results-gpu": "On one GPU",
    "results-precision": "Error of kernel values",
    "precision-emulated": "Error of rounded features",
}
ELSEWHERE = frozenset(("results-reproduction",))  # files that have a page of their own


def page() -> str:
    """Return the page, Markdown."""
    lines = [
        "# Measured",
        "",
        "This page is generated from the files of figures in `benchmarks/` when the site is built; no figure in it is",
        "typed by hand. [benchmarks/README.md](README.md) describes how each was measured. Rows of the papers,",
        "measured again, are on a [page of their own](reproduction.md).",
    ]
    files = {path.stem: path for path in sorted(FOLDER.glob("*.json")) if path.stem not in ELSEWHERE}
    for stem in [*(stem for stem in TITLES if stem in files), *(stem for stem in files if stem not in TITLES)]:
        title, path = TITLES.get(stem, stem.replace("-", " ")), files[stem]
        lines += ["", f"## {title}", "", *section(read(path), path)]
    return "\n".join(lines) + "\n"


def section(runs: list[Run], path: Path) -> list[str]:
    """Return the lines of one file."""
    about = [origin(runs[-1]), *([NOTES[path.stem]] if path.stem in NOTES else []), f"[JSON]({path.name})"]
    lines = [" ".join(about), "", *FORMS.get(runs[0].benchmark, any_tables)(runs)]
    picture = path.with_suffix(".png")
    return [*lines, "", f"![{picture_text(path)}]({picture.name})"] if picture.exists() else lines


def picture_text(path: Path) -> str:
    """Return the alternative text of a figure."""
    return f"Plot of the figures: {TITLES.get(path.stem, path.stem)}"


def origin(run: Run) -> str:
    """Return date and machine in a sentence."""
    about = ", ".join(_of_machine(run.machine)) or "machine not recorded"
    with_them = "; " + ", ".join(f"{name} {number}" for name, number in run.versions.items()) if run.versions else ""
    return f"**{run.date or 'Date not recorded'}**, on {about}{with_them}."


def _of_machine(machine: Mapping[str, Any]) -> Iterator[str]:
    words = {"n_cores": "{} cores", "memory_gb": "{} GB"}
    for name, value in machine.items():
        yield words.get(name, "{}").format(value)


def table(header: list[str], rows: list[list[Any]]) -> list[str]:
    """Return a Markdown table."""
    cells = [[text(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *cells]]


def text(value: Any) -> str:
    """Return a value as text; unknown values are empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    return str(value).replace("|", "\\|")


def main_job(runs: list[Run]) -> list[str]:
    """Return the fits of `main_job.py`."""
    header = ["fit", "store", "workers", "rows scored", "error", "set-up, s", "first epoch, s", "last, s", "all, s"]
    return table(
        [*header, "peak GB", "GFLOP/s before, after"],
        [
            [
                f"`{row['fit']}`",
                row["store"],
                row["n_workers"],
                row["n_rows_scored"],
                _score(row),
                sum(value for name, value in row.items() if name.startswith("setup_")),
                *(row["epoch_seconds"][:1] or [None]),
                *(row["epoch_seconds"][-1:] or [None]),
                row["wall_seconds"],
                max(row["peak_rss_of_processes_gb"], default=""),
                row["sgemm_gflops_before_after"],
            ]
            for row in rows_of(runs, "fits")
        ],
    )


def _score(row: Row) -> str:
    """Return the share of wrong labels, or the RMSE of a regression."""
    if row.get("error") is not None:
        return f"{row['error']:.2%}"
    return f"RMSE {text(row['rmse'])}" if row.get("rmse") is not None else ""


def rows_of(runs: list[Run], name: str) -> list[Row]:
    """Return the rows of a table of all runs."""
    return [row for run in runs for row in run.tables.get(name, ())]


def kernel_products(runs: list[Run]) -> list[str]:
    """Return nanoseconds per kernel value, by method."""
    lines: list[str] = []
    for run in runs:
        dense = run.tables.get("dense", ())
        methods = list(dict.fromkeys(row["method"] for row in dense))
        found = {(row["kernel"], row["n_features"], row["n_outputs"], row["method"]): row for row in dense}
        cases = dict.fromkeys(key[:3] for key in found)
        rows = [
            [*case, *(found[*case, m]["ns_per_entry"] if (*case, m) in found else "" for m in methods)]
            for case in cases
        ]
        lines += ["Nanoseconds per kernel value, including the product with the coefficients.", ""]
        lines += table(["kernel", "d", "c", *(method.replace("_", " ") for method in methods)], rows)
        lines += ["", *_uniform(run.tables["scaling"])] if "scaling" in run.tables else []
    return lines


def choices(runs: list[Run]) -> list[str]:
    """Return a table for each question: error and seconds of every answer on every data set."""
    lines: list[str] = []
    results = rows_of(runs, "results")
    data = {row["data"]: f"{row['data']} ({row['n_rows']:,} x {row['n_features']})" for row in results}
    for question in dict.fromkeys(row["question"] for row in results):
        found = {(row["answer"], row["data"]): row for row in results if row["question"] == question}
        rows = [
            [answer, *(_error(found.get((answer, name))) for name in data)]
            for answer in dict.fromkeys(answer for answer, _ in found)
        ]
        lines += [f"### {question.capitalize()}", "", *table([question, *data.values()], rows), ""]
    return lines


def _error(row: Row | None) -> str:
    return "" if row is None else f"{row['error']:.2%} in {row['seconds']:.1f} s"


def precision(runs: list[Run]) -> list[str]:
    """Return the worst relative error of each kernel on each kind of rows."""
    errors = rows_of(runs, "errors")
    kinds = list(dict.fromkeys(row["rows"] for row in errors))
    worst = {(row["kernel"], row["rows"]): max(_errors_of(row)) for row in errors}
    return table(
        ["kernel", *kinds],
        [
            [kernel, *(f"{worst[kernel, kind]:.0e}" for kind in kinds)]
            for kernel in dict.fromkeys(row["kernel"] for row in errors)
        ],
    )


def _errors_of(row: Row) -> list[float]:
    return [value for name, value in row.items() if name.startswith("largest_relative_error")]


def any_tables(runs: list[Run]) -> list[str]:
    """Return every table of the runs."""
    lines: list[str] = []
    for run in runs:
        for rows in run.tables.values():
            lines += [*_uniform(rows), ""] if rows else []
    return lines


def raw_tables(runs: list[Run]) -> list[str]:
    """Return the mean errors on tables in percent, the latest of every contender, and their mean and mean rank."""
    found, names = merged(runs)
    means, ranks = of_all(found, names)
    keys, lines = [f"{name}_error" for name in names], {**found, OVER_ALL[0]: means}
    shares = [[data, *(in_percent(row.get(key)) for key in keys)] for data, row in lines.items()]
    header = ["table", *(name.replace("_", " ") for name in names)]
    return table(header, [*shares, [OVER_ALL[1], *(ranks[key] for key in keys)]])


def time_to_error(runs: list[Run]) -> list[str]:
    """Return a table for each data set: seconds and error of every contender, the best error first."""
    rows = rows_of(runs, "contenders")
    latest = {(row["data"], row["contender"], row.get("n_landmarks")): row for row in rows}
    lines: list[str] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = sorted((row for key, row in latest.items() if key[0] == data), key=lambda row: row.get("error", 1e300))
        first = mine[0]
        budgets = {
            run.settings["budget_s"] for run in runs if any(row["data"] == data for row in run.tables["contenders"])
        }
        title = f"### {data.replace('_', '-')}: {first['n_rows']:,} rows, {first['n_features']} features"
        limits = " or ".join(map(text, sorted(budgets)))
        about = f"Error is the {first['measure']}. The time limit of a process was {limits} seconds."
        header = ["contender", "landmarks", "error", "fit, s", "whole, s", "peak GB", "GFLOP/s of np.matmul"]
        lines += [title, "", about, "", *table(header, [_contender(row) for row in mine]), ""]
    missing = dict.fromkeys(name for run in runs for name in run.settings["missing"])
    return [*lines, f"Not installed, and left out: {', '.join(missing)}."] if missing else lines


def _contender(row: Row) -> list[Any]:
    error = row["ended"]
    if "error" in row:
        error = f"{row['error']:.2%}" if row["measure"].startswith("share") else row["error"]
    rest = [row.get("fit_seconds", ""), row["whole_seconds"], row.get("peak_gb", ""), row["sgemm_gflops"]]
    return [row["contender"], row.get("n_landmarks", ""), error, *rest]


def scaling(runs: list[Run]) -> list[str]:
    """Return a table for each varied parameter."""
    lines: list[str] = []
    rows = sorted(
        {(row["varied"], row[row["varied"]]): row for row in rows_of(runs, "sizes")}.values(),
        key=lambda row: row[row["varied"]],
    )
    header = ["set-up, s", "epoch, s", "planned GB", "measured peak GB"]
    for name in dict.fromkeys(row["varied"] for row in rows_of(runs, "sizes")):
        mine = [row for row in rows if row["varied"] == name]
        fixed = [f"{text(mine[0][key])} {words(key)}" for key in ("n_rows", "n_landmarks", "n_features") if key != name]
        figures = [[row[name], *(row[key] for key in _OF_SIZES)] for row in mine]
        lines += [f"### {words(name).capitalize()}", "", f"With {', '.join(fixed)}.", ""]
        lines += [*table([words(name), *header], figures), ""]
    return lines


_OF_SIZES = ("setup_seconds", "epoch_seconds", "planned_gb", "peak_gb")


def _uniform(rows: Sequence[Row]) -> list[str]:
    """Return a table of rows; columns that are the same in all rows are moved to a sentence."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) == 1:
        return [", ".join(f"{words(name)} {text(rows[0][name])}" for name in names) + "."]
    same = [name for name in names if len(rows) > 1 and all(row.get(name) == rows[0].get(name) for row in rows)]
    shown = [name for name in names if name not in same]
    said = [f"In all rows: {', '.join(f'{words(name)} {text(rows[0][name])}' for name in same)}.", ""] if same else []
    return [
        *said,
        *table([words(name) for name in shown], [[row.get(name, "") for name in shown] for row in rows]),
    ]


def words(name: str) -> str:
    """Return the name of a column as words."""
    return name.removeprefix("n_").replace("_", " ")


FORMS: dict[str, Callable[[list[Run]], list[str]]] = {
    "main_job": main_job,
    "kernel_products": kernel_products,
    "choices": choices,
    "kernel_precision": precision,
    "time_to_error": time_to_error,
    "scaling": scaling,
    "tables": raw_tables,
}


if __name__ == "__main__":
    print(page(), end="")

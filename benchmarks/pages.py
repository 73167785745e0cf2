"""The page of measured figures, made from every JSON file beside this script.

A file is a record, or a list of records, with `machine` and `date`. What is known by its form gets a table made for it;
of others every list of records becomes a table, and what is the same in all of its rows is said once.

    python benchmarks/pages.py > benchmarks.md
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
NOTES = {
    "results-cpu-2-cores": "`train.zarr` is Fashion-MNIST, 60,000 x 784, `ctrain.zarr` covtype, 464,809 x 54, scaled.",
    "results-choices": "Error on held-out rows and seconds of the whole fit; one run each on a busy machine.",
}
TITLES = {
    "results-cpu-2-cores": "Fits from the command line",
    "results-kernel-products-cpu-2-cores": "Kernel products against peers",
    "results-choices": "Kernel, landmarks, solver: one choice at a time",
    "results-recovery": "Recovery from faults",
    "results-collectives": "Sums over the ranks",
    "results-precision": "Error of kernel values",
    "precision-emulated": "Error of rounded features",
}
Record = dict[str, Any]


def page() -> str:
    """Return the page, Markdown."""
    lines = [
        "# Measured",
        "",
        "This page is made from the files of figures in `benchmarks/` when the site is built; no figure in it is typed",
        "by hand.",
        "How each was measured is told in [benchmarks/README.md](README.md).",
    ]
    files = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
    for stem in [*(stem for stem in TITLES if stem in files), *(stem for stem in files if stem not in TITLES)]:
        path = files[stem]
        lines += ["", f"## {TITLES.get(path.stem, path.stem.replace('-', ' '))}", ""]
        lines += section(json.loads(path.read_text()), path)
    return "\n".join(lines) + "\n"


def section(content: Any, path: Path) -> list[str]:
    """Return the lines of one file."""
    records: list[Record] = content if isinstance(content, list) else [content]
    kind = records[0].get("benchmark", "main_job" if "sgemm_gflops_before_after" in records[0] else "")
    said = " ".join([origin(records[0]), *([NOTES[path.stem]] if path.stem in NOTES else []), f"[JSON]({path.name})"])
    lines = [said, "", *FORMS.get(kind, any_records)(records)]
    picture = path.with_suffix(".png")
    return [*lines, "", f"[Plot]({picture.name})"] if picture.exists() else lines


def origin(record: Record) -> str:
    """Return date and machine in a sentence."""
    about = record.get("machine", "machine not recorded")
    if isinstance(about, dict):
        about = f"{about['cpu']}, {about['n_cores']} cores, {about['memory_gb']} GB, {about['system']}, {about['blas']}"
    versions = record.get("versions", {})
    with_them = "; " + ", ".join(f"{name} {number}" for name, number in versions.items()) if versions else ""
    return f"**{record.get('date', 'Date not recorded')}**, on {about}{with_them}."


def table(header: list[str], rows: list[list[Any]]) -> list[str]:
    """Return a Markdown table."""
    cells = [[text(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *cells]]


def text(value: Any) -> str:
    """Return a value as it is shown."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    return str(value).replace("|", "\\|")


def main_job(records: list[Record]) -> list[str]:
    """Return the fits of `main_job.py`."""
    header = [
        "fit",
        "store",
        "workers",
        "rows scored",
        "error",
        "set-up, s",
        "first epoch, s",
        "last, s",
        "all, s",
        "peak GB",
    ]
    return table(
        [*header, "GFLOP/s before, after"],
        [
            [
                f"`{' '.join(record['fit'])}`",
                record["train"],
                record["workers"],
                record["score"]["n_rows"],
                f"{record['score']['error']:.2%}",
                sum(record["setup_seconds"].values()),
                record["epoch_seconds"][0],
                record["epoch_seconds"][-1],
                record["wall_seconds"],
                max(record["peak_rss_of_processes_gb"]),
                record["sgemm_gflops_before_after"],
            ]
            for record in records
        ],
    )


def kernel_products(records: list[Record]) -> list[str]:
    """Return nanoseconds for one kernel value, by method."""
    lines: list[str] = []
    for record in records:
        dense = record["sections"]["dense"]
        methods = list(dict.fromkeys(method for case in dense for method in case["methods"]))
        rows = [
            [case["kernel"], case["n_features"], case["n_outputs"]]
            + [case["methods"].get(method, {}).get("ns_per_entry", "") for method in methods]
            for case in dense
        ]
        lines += ["Nanoseconds for one kernel value, the product with the coefficients included.", ""]
        lines += table(["kernel", "d", "c", *(method.replace("_", " ") for method in methods)], rows)
        lines += ["", *any_records([record["sections"]["scaling"]])] if "scaling" in record["sections"] else []
    return lines


def choices(records: list[Record]) -> list[str]:
    """Return a table for each question: error and seconds of every answer on every data set."""
    lines: list[str] = []
    results = [row for record in records for row in record["results"]]
    data = {row["data"]: f"{row['data']} ({row['n_rows']:,} x {row['n_features']})" for row in results}
    for question in dict.fromkeys(row["question"] for row in results):
        found = {(row["answer"], row["data"]): row for row in results if row["question"] == question}
        rows = [
            [answer, *(_error(found.get((answer, name))) for name in data)]
            for answer in dict.fromkeys(answer for answer, _ in found)
        ]
        lines += [f"### {question.capitalize()}", "", *table([question, *data.values()], rows), ""]
    return lines


def _error(row: Record | None) -> str:
    return "" if row is None else f"{row['error']:.2%} in {row['seconds']:.1f} s"


def precision(records: list[Record]) -> list[str]:
    """Return the worst relative error of each kernel on each kind of rows."""
    errors = records[0]["errors"]
    kinds = list(next(iter(errors.values())))
    return table(["kernel", *kinds], [[name, *(_worst(row[kind]) for kind in kinds)] for name, row in errors.items()])


def _worst(value: Any) -> str:
    return f"{max(value):.0e}" if isinstance(value, list) else text(value)


def any_records(records: list[Record]) -> list[str]:
    """Return a table of each list of records within `records`."""
    lines: list[str] = []
    for record in records:
        for value in record.values():
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                lines += [*_uniform([dict(_flat(row)) for row in value]), ""]
    return lines


def _uniform(rows: list[Record]) -> list[str]:
    """Return a table of rows without the columns that are the same in all of them, which a sentence says."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    same = [name for name in names if len(rows) > 1 and all(row.get(name) == rows[0].get(name) for row in rows)]
    shown = [name for name in names if name not in same]
    said = [f"Everywhere {', '.join(f'{name} {text(rows[0][name])}' for name in same)}.", ""] if same else []
    return [
        *said,
        *table([name.replace("_", " ") for name in shown], [[row.get(name, "") for name in shown] for row in rows]),
    ]


def _flat(row: Record, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{name}", value


FORMS: dict[str, Callable[[list[Record]], list[str]]] = {
    "main_job": main_job,
    "kernel_products": kernel_products,
    "choices": choices,
    "kernel_precision": precision,
}


if __name__ == "__main__":
    print(page(), end="")

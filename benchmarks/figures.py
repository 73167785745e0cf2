"""The format of all files of figures: a list of runs, each with its machine, versions, settings and tables.

    {"schema": "daskkern-figures/1",
     "runs": [{"benchmark": "choices", "date": "2026-11-22", "machine": {...}, "versions": {...},
               "settings": {...}, "tables": {"results": [{"data": "magic", "fit_seconds": 1.2, ...}, ...]}}]}

A table is a list of flat rows. The name of a number states its unit: one of its words is in :data:`UNITS`; ``n_`` is a
count, shares, ratios, errors and accuracies are plain numbers, and :data:`PARAMETERS` are parameters of a method.
Settings hold the parameters of the run, tables its measurements. NaN and infinity are written as null.
"""

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "daskkern-figures/1"
_SIZES = ("s", "ms", "us", "ns", "seconds", "bytes", "kb", "mb", "gb", "gflops", "tflops", "cores")
_PLAIN = (
    "percent",
    "share",
    "ratio",
    "rate",
    "error",
    "errors",
    "difference",
    "accuracy",
    "auc",
    "mae",
    "rmse",
    "loss",
    "cost",
    "losses",
)
UNITS = frozenset((*_SIZES, *_PLAIN))
PARAMETERS = frozenset(("alpha", "length_scale", "load_average", "seed"))
COUNTS = frozenset("npdcm")
"""Rows, landmarks, features, outputs and rows of a batch, as the field calls them."""

Scalar = str | int | float | bool | None
Row = Mapping[str, Any]


class FiguresError(Exception):
    """A file of figures that does not have the format; the message says where, what was found and what was expected."""


@dataclass(frozen=True)
class Run:
    """One run of a benchmark.

    Attributes
    ----------
    benchmark : str
        Its name in the runner.
    date : str or None
        ISO date; None where it was not recorded.
    machine : mapping
        Processor, ``n_cores``, ``memory_gb``; empty where it was not recorded.
    versions : mapping
        Of Python and packages.
    settings : mapping
        Parameters of the run: scalars, or lists of them.
    tables : mapping from name to rows
        Measurements. A row maps names to scalars, or to lists of them.
    """

    benchmark: str
    date: str | None
    machine: Mapping[str, Scalar]
    versions: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for problem in problems(asdict(self)):
            raise FiguresError(f"figures of {self.benchmark!r}: {problem}")


def today() -> str:
    """Return the date of a run."""
    return datetime.date.today().isoformat()


def problems(record: Any) -> Iterator[str]:
    """Yield a sentence for every deviation of the record of a run from the format."""
    wanted = {"benchmark", "date", "machine", "versions", "settings", "tables"}
    if not isinstance(record, dict) or set(record) != wanted:
        found = sorted(record) if isinstance(record, dict) else type(record).__name__
        yield f"a run has the keys {sorted(wanted)}, got {found}"
        return
    if not isinstance(record["benchmark"], str) or not record["benchmark"]:
        yield f"benchmark is a name, got {record['benchmark']!r}"
    if record["date"] is not None and not _is_date(record["date"]):
        yield f"date is an ISO date or null, got {record['date']!r}"
    for name in ("machine", "versions", "settings", "tables"):
        if not isinstance(record[name], dict):
            yield f"{name} is an object, got {type(record[name]).__name__}"
            return
    for name in ("machine", "versions"):
        yield from (f"{name}.{key} is not a scalar" for key, value in record[name].items() if not _is_scalar(value))
    yield from (f"settings.{key} is not flat" for key, value in record["settings"].items() if not _is_flat(value))
    for name, rows in record["tables"].items():
        yield from _table_problems(name, rows)


def _table_problems(name: str, rows: Any) -> Iterator[str]:
    if not isinstance(rows, list | tuple):
        yield f"table {name} is a list of rows, got {type(rows).__name__}"
        return
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            yield f"row {number} of table {name} is an object, got {type(row).__name__}"
            continue
        for key, value in row.items():
            if not _is_flat(value):
                yield f"row {number} of table {name}: {key} is not a scalar or a list of scalars"
            elif _has_numbers(value) and not names_its_unit(key):
                yield f"row {number} of table {name}: the number {key} does not name its unit"


def names_its_unit(name: str) -> bool:
    """Return whether the name of a number states what it counts or its unit."""
    words = name.lower().replace("-", "_").split("_")
    return name in PARAMETERS or "n" in words or words[-1] in COUNTS or not UNITS.isdisjoint(words)


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.date.fromisoformat(value))
    except ValueError:
        return False


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_flat(value: Any) -> bool:
    return _is_scalar(value) or (isinstance(value, list | tuple) and all(_is_scalar(each) for each in value))


def _has_numbers(value: Any) -> bool:
    each = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, int | float) and not isinstance(one, bool) for one in each)


def from_plain(
    record: Mapping[str, Any], settings: Sequence[str] = (), renamed: Mapping[str, str] | None = None
) -> Run:
    """Return the run of a nested record: lists of objects and objects become tables, single values the table `whole`.

    `settings` names the parameters, `renamed` maps names to ones that state a unit. Nested names are joined by "_".
    FiguresError if the name of a number states no unit.
    """
    words = renamed or {}
    about = {name: record.get(name) or {} for name in ("machine", "versions")}
    tables: dict[str, list[Row]] = {}
    whole: dict[str, Any] = {}
    for name, value in record.items():
        if name in ("benchmark", "date", "machine", "versions", *settings):
            continue
        if isinstance(value, Mapping):
            tables[name] = [dict(_flattened(value, words))]
        elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            tables[name] = [dict(_flattened(each, words)) for each in value]
        else:
            whole[words.get(name, name)] = value
    if whole:
        tables["whole"] = [whole]
    requested = dict(_flattened({name: record[name] for name in settings}, words))
    return Run(record["benchmark"], record.get("date"), **about, settings=requested, tables=tables)


def _flattened(record: Mapping[str, Any], renamed: Mapping[str, str], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, renamed, f"{before}{name}_")
        else:
            yield f"{before}{renamed.get(name, name)}", value


def read(path: Path) -> list[Run]:
    """Return the runs of a file. FiguresError names the first deviation from the format."""
    content = json.loads(path.read_text())
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or set(content) != {"schema", "runs"}:
        raise FiguresError(f"{path.name} is not of the schema {SCHEMA}; benchmarks/figures.py defines its format")
    for record in content["runs"]:
        for problem in problems(record):
            raise FiguresError(f"{path.name}: {problem}")
    return [Run(**record) for record in content["runs"]]


def write(runs: Sequence[Run], path: Path) -> None:
    """Write a file of these runs."""
    content = {"schema": SCHEMA, "runs": [_without_nan(asdict(run)) for run in runs]}
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def add(run: Run, path: Path | None, *, keep: bool = False) -> None:
    """Write `run` to `path`, if one is given; with `keep`, append it to the existing runs."""
    if path is not None:
        write([*(read(path) if keep and path.exists() else []), run], path)

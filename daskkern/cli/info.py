"""``daskkern info``: the contents and statistics of a store, and the facts on a model."""

import dataclasses
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

import click

from daskkern.cli.console import OUT, say, say_json, table
from daskkern.data.schema.encoding import ColumnEncoding, Encoding
from daskkern.data.storage.info import QUANTILES, StoreDescription, TargetDescription, describe_store
from daskkern.display import rounded
from daskkern.evaluation.calibration_facts import calibration_of
from daskkern.kernels import TreeAverage
from daskkern.models import KernelModel, is_model, load_model
from daskkern.monitor.formatting import format_bytes

_BAR = 30
_LONGEST = 120
_CLASSES, _COLUMNS, _TARGETS = 20, 10, 5


@click.command("info")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every column.")
def command(store: str, as_json: bool) -> None:
    """Show what STORE holds: sizes, classes or targets, chunks, statistics and where it came from.

    STORE may also be a model: its kernel, loss, columns and calibration.
    """
    if is_model(store):
        facts = dict(model_facts(load_model(store)))
        if as_json:
            say_json(facts)
        else:
            for name, value in facts.items():
                say(f"{name}: {value}")
        return
    description = describe_store(store)
    if as_json:
        found = dataclasses.asdict(description)
        say_json({**found, "n_bytes": description.n_bytes, "stored_bytes": description.stored_bytes})
        return
    for name, value in summary(description):
        say(f"{name}: {value}")
    for title, columns, rows in _tables(description):
        if OUT.is_terminal:
            table(title, columns, rows)
        else:
            say(f"{title}:")
            for row in rows:
                cells = (f"{column} {cell}" for column, cell in zip(columns[1:], row[1:], strict=True))
                say("  ".join(("", row[0], *cells)).rstrip())


def model_facts(model: KernelModel) -> list[tuple[str, str]]:
    """Return the one-line facts on a model, as pairs of name and value."""
    n_classes = 0 if model.classes is None else len(model.classes)
    kind = "label" if model.task == "multilabel" else "target"
    outputs = (
        f"{n_classes:,} class{'es' * (n_classes > 1)}"
        if n_classes
        else f"{model.n_targets} {kind}{'s' * (model.n_targets > 1)}"
    )
    trees = f" of {model.kernel.n_trees} trees" if isinstance(model.kernel, TreeAverage) else ""
    return [
        ("task", f"{model.task}, {outputs}"),
        ("kernel", shorten(rounded(repr(model.kernel)), _LONGEST, placeholder=" ...")),
        ("loss", model.loss),
        ("columns", f"{model.coef.shape[0]:,}{trees} ({format_bytes(model.nbytes)})"),
        ("features", f"{model.n_features:,}, scaling {model.scaling.kind}"),
        *_encoding(model.encoding),
        *_used_columns(model),
        *_fitted(model.provenance),
        *calibration_of(model),
    ]


def _fitted(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return on what rows and by which solver and penalty the model was fitted, as far as that is recorded."""
    data, settings = (provenance.get(name) for name in ("data", "settings"))
    if not isinstance(data, Mapping) or not isinstance(settings, Mapping):
        return []
    rows, solver, alpha = data.get("rows"), settings.get("solver"), settings.get("alpha")
    parts = [f"{rows:,} rows of {data.get('name', '')}"] if isinstance(rows, int) else []
    parts += [f"solver {solver.get('name', '')}"] if isinstance(solver, Mapping) else []
    parts += [f"alpha {alpha:.3g}"] if isinstance(alpha, int | float) else []
    return [("fitted on", ", ".join(parts))] if parts else []


def _encoding(encoding: Encoding | None) -> list[tuple[str, str]]:
    """Return how many columns of each kind became features; nothing where all were used unchanged."""
    if encoding is None:
        return []
    kinds = ["categories" if c.kind != "number" else "dates" if c.is_date else "numbers" for c in encoding]
    counts = [(kind, kinds.count(kind)) for kind in ("numbers", "dates", "categories") if kind in kinds]
    first, count = counts[0]
    parts = [f"{count:,} column{'s' * (count > 1)} of {first}", *(f"{n:,} of {kind}" for kind, n in counts[1:])]
    return [("encoding", " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + parts[-1:]))]


def _used_columns(model: KernelModel) -> list[tuple[str, str]]:
    """Return how many columns of the fit have coefficients other than 0, where some have none."""
    started, used = model.history_.started, int(model.coef.any(axis=1).sum())
    total = max(len(model.coef), 0 if started is None else started.n_columns)
    if used == total or isinstance(model.kernel, TreeAverage):
        return []
    return [("non-zero columns", f"{used:,} of {total:,}")]


def summary(d: StoreDescription) -> list[tuple[str, str]]:
    """Return the one-line facts on a store, as pairs of name and value."""
    density = "" if d.density is None else f", sparse, {d.density:.3g} of the entries stored"
    lines = [
        ("store", f"{d.path} (version {d.version})"),
        ("rows", f"{d.n_rows:,} of {d.n_features:,} features ({d.dtype}{density})"),
        ("task", _task(d)),
        ("chunks", f"{d.chunk_rows:,} rows each, {sum(array.n_chunks for array in d.arrays):,} in all arrays"),
        ("bytes", f"{format_bytes(d.n_bytes)}, on disk {format_bytes(d.stored_bytes)}"),
        ("scaling", f"{d.scaling}" + ("" if d.scaling == "none" else " (applied when rows are read)")),
    ]
    lines += _encoding(d.encoding)
    if d.weight is not None:
        w = d.weight
        lines.append(("weights", f"from {w.min:.4g} to {w.max:.4g}, mean {w.mean:.4g}, {w.n_zero:,} are 0"))
    if d.task is not None:
        lines.append(("order", f"{'sorted by' if d.is_sorted else 'not sorted by'} target ({d.sorted_share:.0%})"))
    if d.n_constant:
        lines.append(("constant features", f"{d.n_constant:,}"))
    return [*lines, *((f"made {key}", _plain(value)) for key, value in d.provenance.items() if value is not None)]


def _task(d: StoreDescription) -> str:
    if d.task == "classification" and d.classes is not None:
        return f"classification, {len(d.classes):,} classes"
    return "none" if d.task is None else f"{d.task}, {d.n_targets} target{'s' * (d.n_targets > 1)}"


def _plain(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)


_Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def _tables(d: StoreDescription) -> list[_Table]:
    tables = [_arrays(d)]
    if d.classes is not None and d.class_counts is not None:
        tables.append(_classes(d))
    for target in d.targets[:_TARGETS]:
        tables += [_quantiles(target), _histogram(target)]
    if d.encoding is not None:
        tables.append(_encoded(d.encoding))
    tables.append(_columns(d))
    return tables


def _arrays(d: StoreDescription) -> _Table:
    rows: list[tuple[str, ...]] = [
        (
            array.name,
            " x ".join(str(length) for length in array.shape),
            array.dtype,
            " x ".join(str(length) for length in array.chunks),
            ", ".join(array.compressors) or "none",
            format_bytes(array.stored_bytes),
        )
        for array in d.arrays
    ]
    return "arrays", ("array", "shape", "dtype", "chunk", "compression", "on disk"), rows


def _classes(d: StoreDescription) -> _Table:
    pairs = list(zip(d.classes or (), d.class_counts or (), strict=True))
    most = max(count for _, count in pairs)
    rows: list[tuple[str, ...]] = [
        (repr(label), f"{count:,}", f"{count / d.n_rows:.2%}", _bar(count, most)) for label, count in pairs
    ]
    title = f"classes, the first {_CLASSES} of {len(rows):,}" if len(rows) > _CLASSES else "classes"
    return title, ("label", "rows", "share", ""), rows[:_CLASSES]


def _quantiles(target: TargetDescription) -> _Table:
    cells = [(f"{q:.0%}", f"{value:.6g}") for q, value in zip(QUANTILES, target.quantiles, strict=True)]
    rows: list[tuple[str, ...]] = [("mean", f"{target.mean:.6g}"), ("std", f"{target.std:.6g}"), *cells]
    return f"{target.name}, quantiles of {target.n_sampled:,} rows", ("", "value"), rows


def _histogram(target: TargetDescription) -> _Table:
    most = max(target.counts)
    edges = [f"{edge:.4g}" for edge in target.edges]
    rows: list[tuple[str, ...]] = [
        (f"{low} to {high}", f"{count:,}", _bar(count, most))
        for low, high, count in zip(edges[:-1], edges[1:], target.counts, strict=True)
    ]
    return f"{target.name}, histogram", ("range", "rows", ""), rows


def _columns(d: StoreDescription) -> _Table:
    of = ("mean", "std", "min", "max", *(("shift", "scale") if d.scaling != "none" else ()))
    rows = [(c.name, *(f"{getattr(c, name):.6g}" for name in of)) for c in d.columns[:_COLUMNS]]
    title = f"features, the first {_COLUMNS} of {d.n_features:,}" if d.n_features > _COLUMNS else "features"
    return title, ("feature", *of), rows


def _encoded(encoding: Encoding) -> _Table:
    shown = encoding[:_COLUMNS]
    rows: list[tuple[str, ...]] = [
        (c.name, _meaning(c), "refused" if c.fill is None else _filled(c.fill)) for c in shown
    ]
    title = f"columns, the first {_COLUMNS} of {len(encoding):,}" if len(encoding) > _COLUMNS else "columns"
    return title, ("column", "is", "missing"), rows


def _meaning(column: ColumnEncoding) -> str:
    if column.kind == "number":
        return "days since 1970-01-01" if column.is_date else "a number"
    count = f"{len(column.categories):,} categor{'ies' if len(column.categories) > 1 else 'y'}"
    how = {
        "onehot": f"one feature for each of {count}",
        "code": f"a code of {count}",
        "ordinal": f"a number of {count}",
    }
    return shorten(f"{how[column.kind]}: {', '.join(column.categories)}", _LONGEST, placeholder=" ...")


def _filled(fill: float | str) -> str:
    return fill if isinstance(fill, str) else f"{fill:.6g}"


def _bar(count: int, most: int) -> str:
    return "#" * round(_BAR * count / max(1, most))

"""Means and ranks of the errors of benchmarks/tables.py, over seeds, tables and runs."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import pandas as pd
from figures import Run

OVER_ALL = ("mean", "mean rank")


def summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the mean error over the seeds of each table; and of all tables the mean error, and the mean rank."""
    tables = dict.fromkeys(row["data"] for row in rows)
    found = {data: _means([row for row in rows if row["data"] == data], names) for data in tables}
    over_all = zip(OVER_ALL, of_all(found, names), strict=True)
    return [{"data": data, **row} for data, row in (*found.items(), *over_all)]


def of_all(
    found: Mapping[str, Mapping[str, float | None]], names: Sequence[str]
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the mean error and the mean rank over the tables that all of them were tried on."""
    rows = [row for row in found.values() if all(f"{name}_error" in row for name in names)]
    ranks = [_ranks(row, names) for row in rows]
    by_rank = {f"{name}_error": _mean([rank[name] for rank in ranks]) for name in names}
    return _means(rows, names), by_rank


def merged(runs: Sequence[Run]) -> tuple[dict[str, dict[str, float | None]], list[str]]:
    """Return the latest mean error of every contender on every table out of several runs, and the contenders' names.

    None is an error that lacks a split; one that was not tried on a table is not in its row.
    """
    found: dict[str, dict[str, float | None]] = {}
    names: dict[str, None] = {}
    for run in runs:
        names |= dict.fromkeys(run.settings["contenders"])
        for row in run.tables["means"]:
            if row["data"] not in OVER_ALL:
                found.setdefault(row["data"], {}).update({key: row[key] for key in row if key != "data"})
    every = [f"{name}_error" for name in names]
    return {data: {key: row[key] for key in every if key in row} for data, row in found.items()}, list(names)


def in_percent(error: float | None) -> str:
    """Return an error for a page; a dash for none."""
    return "-" if error is None else f"{error:.2%}"


def _means(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | None]:
    return {f"{name}_error": _mean([row[f"{name}_error"] for row in rows]) for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def _ranks(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """Return ranks from 1 on; equal errors share theirs, and what was not done in time comes last."""
    errors = pd.Series({name: row[f"{name}_error"] for name in names}, dtype=float)
    return dict(errors.round(9).rank(na_option="bottom"))

"""The figures of many ranks as Markdown, for the page on scaling."""

from collections.abc import Iterable, Sequence
from typing import Any

from figures import Row, Run
from pages import table, text


def many_ranks(run: Run) -> list[str]:
    """Return the lines of all tables of a run."""
    tables, settings = run.tables, run.settings
    parts = [
        _counts(tables["counts"]),
        ["The links, measured with plain sockets:", "", *_links(tables["links"])],
        [
            ("A step, milliseconds measured / by the model (the measured ones hold for ranks that share the cores "
            "of this machine):"), "", *_steps(tables["steps"]),
        ],
        ["Errors of the model, relative:", "", *_errors(tables["errors"])],
        [_constants(tables["constants"][0], settings)],
        ["Efficiency that follows, with a core or GPU for each rank:", "", *_expected(tables["expected"])],
        ["Ranks up to which an efficiency is kept:", "", *_limits(tables["limits"])],
        _aims(tables["aims"]),
        [
            "[Groups of ranks](#groups-of-ranks) by the model, **not measured**, without the sending of rows:", "",
            *_grids(tables["grids"]),
        ],
        ["Planned memory of one rank that does not keep all rows:", "", *_memory(tables["memory"])],
        [_gangs(tables["gangs"])],
    ]  # fmt: skip
    lines = [line for part in parts for line in (*part, "")]
    return lines[:-1]


def _counts(rows: Sequence[Row]) -> list[str]:
    equal, measured = (sum(row[name] for row in rows) for name in ("n_equal_to_formula", "n_measured"))
    shares = [share for row in rows for share in row["read_share_of_store"]]
    ranks = _listed(row["n_ranks"] for row in rows)
    read = text(min(shares)) if min(shares) == max(shares) else f"{text(min(shares))} to {text(max(shares))}"
    said = (
        f"On {ranks} ranks, the messages and bytes of {equal} of {measured} measured sums and epochs are exactly "
        f"those of the formulas, and an epoch of a fit reads {read} times the bytes of its store."
    )
    return [said]


def _listed(values: Iterable[Any]) -> str:
    *first, last = map(text, dict.fromkeys(values))
    return f"{', '.join(first)} and {last}" if first else last


def _links(rows: Sequence[Row]) -> list[str]:
    header = ["link", "rate set, Gb/s", "delay set, ms", "round trip, ms", "rate, Gb/s"]
    names = ("link", "asked_rate_gbit", "asked_delay_ms", "round_trip_ms", "rate_gbit")
    return table(header, [["" if row[name] is None else row[name] for name in names] for row in rows])


def _steps(rows: Sequence[Row]) -> list[str]:
    links = list(dict.fromkeys(row["link"] for row in rows))
    found = {(row["link"], row["n_ranks"]): f"{text(row['step_ms'])} / {text(row['model_ms'])}" for row in rows}
    ranks = sorted({row["n_ranks"] for row in rows})
    first = {row["n_ranks"]: row for row in rows}
    lines = [[link, *(found.get((link, n), "") for n in ranks)] for link in links]
    lines.append(["messages of a step, all ranks", *(first[n]["n_messages"] for n in ranks)])
    lines.append(["MB of a step, all ranks", *(first[n]["sent_mb"] for n in ranks)])
    lines.append(["computing of a rank, ms of a core", *(first[n]["computing_ms"] for n in ranks)])
    return table(["link", *(f"{n} ranks" for n in ranks)], lines)


def _errors(rows: Sequence[Row]) -> list[str]:
    names = ("sums_median_error", "sums_largest_error", "steps_median_error", "steps_largest_error")
    header = ["link", "sums: median", "largest", "steps: median", "largest"]
    return table(header, [[row["link"], *(f"{row[name]:.0%}" for name in names)] for row in rows])


def _constants(row: Row, settings: Any) -> str:
    return (
        f"The constants: {text(row['latency_ms'])} ms for a crossing, {text(row['message_ms'])} ms of a core for a "
        f"message (both ends), {text(row['copying_mb_per_s'])} MB/s for packing, copying and unpacking, "
        f"{text(row['entry_ns'])} ns for a kernel value with its product (d = {text(settings['d'])}, "
        f"c = {text(settings['c'])}), and {text(row['rest_ms'])} ms for the rest of a step. The sizes of the steps "
        f"below: p = {text(settings['p'])}, m = {text(settings['m'])}."
    )


def _expected(rows: Sequence[Row]) -> list[str]:
    lines = []
    ranks = sorted({row["n_ranks"] for row in rows})
    for machine, sent in dict.fromkeys((row["machine"], row["rows_sent"]) for row in rows):
        mine = {row["n_ranks"]: row for row in rows if (row["machine"], row["rows_sent"]) == (machine, sent)}
        shares = [f"{mine[n]['efficiency_share']:.0%}" if n in mine else "" for n in ranks]
        last = mine[max(mine)]
        parts = ("computing", "rest", "sums", "rows", "rows_on_link")
        lines.append([machine, sent, *shares, ", ".join(text(last[f"{name}_ms"]) for name in parts)])
    header = ["ranks", "rows are sent", *map(str, ranks)]
    return table([*header, "ms of the last: computing, rest, sums, rows, rows on the link"], lines)


def _limits(rows: Sequence[Row]) -> list[str]:
    names = ("machine", "rows_sent", "n_ranks_at_80_percent", "n_ranks_at_60_percent")
    return table(["ranks", "rows are sent", "80%", "60%"], [[row[name] for name in names] for row in rows])


def _aims(rows: Sequence[Row]) -> list[str]:
    said = [
        f"- {text(row['n_ranks'])} ranks, {row['machine']}, rows sent {row['rows_sent']}: "
        f"{row['efficiency_share']:.0%}, the aim of {row['aim_share']:.0%} is {'met' if row['met'] else '**not met**'}."
        for row in rows
    ]
    return ["The aims:", "", *said]


def _grids(rows: Sequence[Row]) -> list[str]:
    names = ("machine", "p", "n_ranks", "n_groups", "one_ms", "best_ms")
    return table(
        ["ranks", "p", "W", "G", "ms, one group", "ms, G groups"], [[row[name] for name in names] for row in rows]
    )


def _memory(rows: Sequence[Row]) -> list[str]:
    header = ["ranks", "planned GB", "largest items", "all rows, if kept, GB"]
    names = ("n_ranks", "planned_gb", "largest", "all_rows_gb")
    return table(header, [[row[name] for name in names] for row in rows])


def _gangs(rows: Sequence[Row]) -> str:
    each = [f"{text(row['gang_s'])} s for {row['n_ranks']} ranks ({row['link']})" for row in rows]
    return f"To form a gang and end it took {', '.join(each)}."

"""The plot of each benchmark, drawn from its file of figures alone.

python benchmarks/pictures.py benchmarks/results-time-to-error.json
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from figures import Row, Run, read
from products.plot import plot_dense
from ranks.picture import many_ranks
from style import GREY, MARKERS, OURS, colour, figure, where
from table_means import merged, of_all

OUR_TABLES = ("daskkern", "auto", "learned", "in_leaves", "by_hand")
"""Our models among the contenders of the tables."""
_LARGEST, _LEAST = 4.0, 1e-3


def time_to_error(runs: Sequence[Run], path: Path) -> None:
    """Draw error against seconds of the fit, a panel for each data set, a line for each contender."""
    every = (row for run in runs for row in run.tables["contenders"])
    rows = list({(row["data"], row["contender"], row.get("n_landmarks")): row for row in every}.values())
    names, data = _values(rows, "contender"), _values(rows, "data")
    n_columns = min(2, len(data))
    n_rows = -(-len(data) // n_columns)
    with figure(path, n_rows, n_columns, f"Error against seconds of the fit\n{where(runs[-1])}", height=3.8) as axes:
        for axis, one in zip(axes.flat, data, strict=False):
            mine = [row for row in rows if row["data"] == one]
            _race(axis, mine, names)
            axis.set_title(f"{one}: {mine[0]['n_rows']:,} rows, {mine[0]['n_features']} features", fontsize=10)
        for axis in axes.flat[len(data) :]:
            axis.axis("off")
        handles: dict[str, Any] = {}
        for axis in axes.flat:
            handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        shown = [name for name in names if name in handles]
        axes[0, -1].legend([handles[name] for name in shown], shown, loc="upper left", bbox_to_anchor=(1.02, 1))


def _race(axis: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    is_share = rows[0]["measure"].startswith("share")
    for name in names:
        points = sorted(
            (row["fit_seconds"], (100 if is_share else 1) * row["error"])
            for row in rows
            if row["contender"] == name and row.get("error") is not None
        )
        if points:
            axis.plot(*zip(*points, strict=True), _marker(name, names), label=name, color=colour(name), ms=6)
    axis.set(xscale="log", xlabel="seconds of the fit (log scale)")
    axis.set_ylabel("wrong labels, %" if is_share else rows[0]["measure"])
    plain_ticks(axis.xaxis)


def scaling(runs: Sequence[Run], path: Path) -> None:
    """Draw seconds of set-up and of an epoch, and planned and measured memory, against the varied parameter."""
    run = runs[-1]
    every = [row for run in runs for row in run.tables["sizes"]]
    rows = sorted({(row["varied"], row[row["varied"]]): row for row in every}.values(), key=lambda r: r[r["varied"]])
    varied = _values(every, "varied")
    lines = (
        (("setup_seconds", "set-up", OURS, "s--"), ("epoch_seconds", "an epoch", OURS, "o-")),
        (("planned_gb", "planned", "#4d4d4d", "s--"), ("peak_gb", "measured peak", OURS, "o-")),
    )
    with figure(path, 2, len(varied), f"Time and memory of a fit\n{where(run)}", width=3.6, height=2.9) as axes:
        for column, name in enumerate(varied):
            mine = [row for row in rows if row["varied"] == name]
            for axis, kinds in zip(axes[:, column], lines, strict=True):
                for key, label, shade, way in kinds:
                    axis.plot([row[name] for row in mine], [row[key] for row in mine], way, color=shade, label=label)
                axis.set(xscale="log", yscale="log", xlabel=name.removeprefix("n_").replace("_", " "))
                axis.set_xticks([row[name] for row in mine], [f"{row[name]:,}" for row in mine])
                axis.minorticks_off()
                plain_ticks(axis.yaxis)
        for axis, label in zip(axes[:, 0], ("seconds", "GB in one process"), strict=True):
            axis.set_ylabel(label)
            axis.legend()


def reproduction(runs: Sequence[Run], path: Path) -> None:
    """Draw the paper's error next to ours, row by row."""
    latest = {row["key"]: row for run in runs for row in run.tables["rows"] if row["unit"] == "error"}
    rows = [row for row in latest.values() if "paper_error" in row]
    labels = [f"{row['what']}\n{row['paper_data']}, here {row['data']}" for row in rows]
    with figure(path, 1, 1, f"Errors of the papers and ours\n{where(runs[-1])}", 9.0, 0.5 * len(rows) + 0.8) as axes:
        axis, places = axes[0, 0], list(range(len(rows)))
        axis.plot([100 * row["our_error"] for row in rows], places, "o", color=OURS, label="daskkern")
        theirs = [100 * row["paper_error"] for row in rows]
        axis.plot(theirs, places, "D", color=colour("paper"), mfc="none", ms=8, label="the paper")
        axis.set_yticks(places, labels)
        axis.set(xlabel="error, %", ylim=(len(rows) - 0.5, -0.5))
        axis.legend(loc="upper left", bbox_to_anchor=(1.02, 1))


def kernel_products(runs: Sequence[Run], path: Path) -> None:
    """Draw nanoseconds per kernel value, by method."""
    plot_dense(runs[-1], path)


def choices(runs: Sequence[Run], path: Path) -> None:
    """Draw the error of each answer, a panel for each question and data set."""
    rows = [row for run in runs for row in run.tables["results"]]
    questions, data = _values(rows, "question"), _values(rows, "data")
    title = f"One choice at a time\n{where(runs[-1])}"
    with figure(path, len(questions), len(data), title, height=2.2) as axes:
        for (i, question), (j, one) in product(enumerate(questions), enumerate(data)):
            mine = [row for row in rows if (row["question"], row["data"]) == (question, one)]
            bars(axes[i, j], [row["answer"] for row in mine], [100 * row["error"] for row in mine], "error, %")
            axes[i, j].set_title(f"{question}: {one}", fontsize=9)


def tables(runs: Sequence[Run], path: Path) -> None:
    """Draw the error of every model on every table, relative to the least one, and the mean rank of the models."""
    found, names = merged(runs)
    title = f"Errors on tables, relative to the least one\n{where(runs[-1])}"
    with figure(path, 1, 2, title, width=6.5, height=0.3 * len(found) + 1.5) as axes:
        axis = axes[0, 0]
        for name in names:
            points = [(_relative(row, f"{name}_error"), place) for place, row in enumerate(found.values())]
            known = [(ratio, place) for ratio, place in points if ratio is not None]
            ours = name in OUR_TABLES
            axis.plot(
                *zip(*known, strict=True), _marker(name, names)[1:], label=name.replace("_", " "),
                color=OURS if ours else None, mfc=OURS if ours else "none", alpha=0.9, ms=6,
            )  # fmt: skip
        axis.set_yticks(range(len(found)), list(found))
        axis.invert_yaxis()
        axis.set(xscale="log", xlabel="error relative to the least one (log scale)", xlim=(0.95, 1.05 * _LARGEST))
        plain_ticks(axis.xaxis)
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1), fontsize=8)
        _, ranks = of_all(found, names)
        order = sorted(names, key=lambda name: ranks[f"{name}_error"] or 0.0)
        values = [ranks[f"{name}_error"] or 0.0 for name in order]
        label = "mean rank over the tables that all were tried on (1 is best)"
        bars(axes[0, 1], [name.replace("_", " ") for name in order], values, label)
        for name, bar in zip(order, axes[0, 1].patches, strict=True):
            bar.set_color(OURS if name in OUR_TABLES else GREY)


def _relative(row: dict[str, float | None], name: str) -> float | None:
    """Return an error as a multiple of the least one of the row; at most what the axis shows."""
    known = [error for error in row.values() if error is not None]
    error = row.get(name)
    return None if error is None else min(_LARGEST, max(error, _LEAST) / max(min(known), _LEAST))


def recovery(runs: Sequence[Run], path: Path) -> None:
    """Draw seconds from each fault to the next step."""
    rows = runs[-1].tables["medians"]
    with figure(path, 1, 1, f"Recovery from faults\n{where(runs[-1])}", 8.0, 0.32 * len(rows) + 1) as axes:
        labels = [f"{row['fault']}, {row['n_workers']} workers" for row in rows]
        bars(axes[0, 0], labels, [row["first_step_s"] for row in rows], "seconds from the fault to the next step")


def regressions(runs: Sequence[Run], path: Path) -> None:
    """Draw each time as a multiple of np.matmul's, run after run."""
    names = _values([row for run in runs for row in run.tables["times"]], "what")
    with figure(path, 1, 1, f"Seconds relative to np.matmul in the same run\n{where(runs[-1])}", 7.0, 4.0) as axes:
        for name in names:
            found = [
                (run.date, row["ratio_to_matmul"]) for run in runs for row in run.tables["times"] if row["what"] == name
            ]
            axes[0, 0].plot(range(len(found)), [ratio for _, ratio in found], _marker(name, names), label=name)
        axes[0, 0].set_xticks(range(len(runs)), [run.date or "" for run in runs])
        axes[0, 0].set(yscale="log", ylabel="ratio to np.matmul (log scale)")
        plain_ticks(axes[0, 0].yaxis)
        axes[0, 0].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))


def bars(axis: Any, labels: Sequence[str], values: Sequence[float], what: str) -> None:
    """Draw horizontal bars with their numbers, the first on top."""
    drawn = axis.barh(range(len(labels)), values, color=OURS)
    axis.bar_label(drawn, [f"{value:.3g}" for value in values], padding=2, fontsize=8)
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.set_xlabel(what)


def plain_ticks(side: Any) -> None:
    """Label a logarithmic axis with plain numbers instead of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    side.set_major_locator(LogLocator(subs=(1, 2, 5)))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    side.set_minor_formatter(NullFormatter())


def _values(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _marker(name: str, names: Sequence[str]) -> str:
    return f"-{MARKERS[names.index(name) % len(MARKERS)]}"


PICTURES: dict[str, Callable[[Sequence[Run], Path], None]] = {
    "time_to_error": time_to_error,
    "scaling": scaling,
    "reproduction": reproduction,
    "kernel_products": kernel_products,
    "choices": choices,
    "tables": tables,
    "recovery": recovery,
    "regressions": regressions,
    "many_ranks": many_ranks,
}


def draw(figures: Path, path: Path) -> bool:
    """Draw the plot of a file of figures to `path`; return whether its benchmark has one."""
    runs = read(figures)
    if runs[-1].benchmark not in PICTURES:
        return False
    PICTURES[runs[-1].benchmark](runs, path)
    return True


if __name__ == "__main__":
    for word in sys.argv[1:]:
        if not draw(Path(word), Path(word).with_suffix(".png")):
            sys.exit(f"there is no plot for {word}; there are plots for {', '.join(PICTURES)}")

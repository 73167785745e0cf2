"""The plot of many ranks: sums and steps, measured and by the model, and the efficiency that it predicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Row, Run
from style import MARKERS, figure, where

_SHADES = ("#00441b", "#1b9e77", "#7570b3", "#d95f02", "#e7298a", "#386cb0", "#666666")


def many_ranks(runs: Sequence[Run], path: Path) -> None:
    """Draw measured against modelled sums, steps by ranks and link, and efficiencies by ranks and kind of rank."""
    run = runs[-1]
    sums, steps, rows = (run.tables[name] for name in ("sums", "steps", "expected"))
    links = list(dict.fromkeys(row["link"] for row in steps))
    with figure(path, 1, 3, f"Many ranks\n{where(run)}", width=5.4, height=4.0) as axes:
        scatter, by_ranks, share = axes[0]
        for link, shade, marker in zip(links, _SHADES, MARKERS, strict=False):
            mine = [row for row in sums if row["link"] == link]
            scatter.plot(
                [row["median_ms"] for row in mine], [row["model_ms"] for row in mine], marker, color=shade, ms=5,
                mfc="none", label=link,
            )  # fmt: skip
            of_link = [row for row in steps if row["link"] == link]
            ranks = [row["n_ranks"] for row in of_link]
            by_ranks.plot(ranks, [row["step_ms"] for row in of_link], marker, color=shade, label=link)
            by_ranks.plot(ranks, [row["model_ms"] for row in of_link], "--", color=shade, lw=1)
        ends = [min(row["median_ms"] for row in sums), max(row["median_ms"] for row in sums)]
        scatter.plot(ends, ends, "-", color="#9e9e9e", lw=1)
        scatter.set(xscale="log", yscale="log", xlabel="a sum, measured, ms", ylabel="by the model, ms")
        scatter.legend(fontsize=7)
        by_ranks.set(xscale="log", yscale="log", xlabel="ranks, which share the cores")
        by_ranks.set_ylabel("a step, ms: measured (points), model (lines)")
        _ticks(by_ranks, sorted({row["n_ranks"] for row in steps}))
        _efficiencies(share, rows)


def _efficiencies(axis: Any, rows: Sequence[Row]) -> None:
    kinds = list(dict.fromkeys(row["machine"] for row in rows))
    for sent, line in (("each epoch, bytes", "-"), ("once, then kept", ":")):
        for machine, shade, marker in zip(kinds, _SHADES[1:], MARKERS, strict=False):
            mine = [row for row in rows if (row["machine"], row["rows_sent"]) == (machine, sent)]
            label = f"{machine}; rows sent {sent}" if sent.startswith("each") or machine == kinds[-1] else None
            shares = [100 * row["efficiency_share"] for row in mine]
            axis.plot([row["n_ranks"] for row in mine], shares, f"{marker}{line}", color=shade, label=label, ms=4)
    axis.set(xscale="log", ylim=(0, 100), xlabel="ranks with a core or GPU each", ylabel="parallel efficiency, %")
    _ticks(axis, sorted({row["n_ranks"] for row in rows}))
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))


def _ticks(axis: Any, numbers: Sequence[int]) -> None:
    axis.set_xticks(numbers, [str(number) for number in numbers])
    axis.minorticks_off()

"""Bars of nanoseconds per kernel entry, one panel for each kernel and number of outputs."""

from itertools import product
from pathlib import Path
from typing import Any

from figures import Row, Run
from style import COLOURS, figure, where

_LABELS = {
    "numpy": "NumPy, straightforward",
    "torch_whole_block": "torch, whole block in place",
    "torch": "torch, the fastest variant",
    "keops": "KeOps (CPU)",
    "daskkern": "daskkern",
}

_UNDER = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}


def plot_dense(run: Run, path: Path) -> None:
    """Write the plot of the dense table of `run` to `path`. Needs matplotlib."""
    records = run.tables["dense"]
    kernels = list(dict.fromkeys(record["kernel"] for record in records))
    outputs = list(dict.fromkeys(record["n_outputs"] for record in records))
    first = records[0]
    sizes = f"{first['n_rows']:,} rows and {first['n_points']:,} points, float32"
    title = f"K(X, Z) A for {sizes}, lower is better: {where(run)}"
    with figure(path, len(kernels), len(outputs), title, width=7.0, height=3.9) as axes:
        for (i, kernel), (j, c) in product(enumerate(kernels), enumerate(outputs)):
            axis = axes[i, j]
            panel = [r for r in records if (r["kernel"], r["n_outputs"]) == (kernel, c)]
            yard = [r for r in run.tables["matmul"] if (r["kernel"], r["n_outputs"]) == (kernel, c)]
            _draw(axis, panel, yard)
            axis.set_title(f"{kernel.capitalize()} kernel, {c} output{'s' * (c > 1)}", fontsize=11)
            axis.set_ylabel("ns per kernel entry (log scale)" if j == 0 else "")
        axes[0, 0].legend(loc="upper left", fontsize=7, ncols=2)


def _draw(axis: Any, panel: list[Row], yard: list[Row]) -> None:
    methods = [name for name in _LABELS if any(row["method"] == name for row in panel)]
    features = [row["n_features"] for row in yard]
    width = 0.84 / len(methods)
    for number, method in enumerate(methods):
        heights = [row["ns_per_entry"] for row in panel if row["method"] == method]
        places = [group + (number - (len(methods) - 1) / 2) * width for group in range(len(heights))]
        bars = axis.bar(places, heights, width * 0.94, color=COLOURS[method], label=_LABELS[method])
        axis.bar_label(
            bars,
            [f"{height:.2g}" if height < 99.5 else f"{height:.0f}" for height in heights],
            fontsize=6.5,
            bbox=_UNDER,
        )
    for group, row in enumerate(yard):
        height = row["distances_median_seconds"] / (row["n_rows"] * row["n_points"]) * 1e9
        label = "np.matmul(X, Z.T) alone" if group == 0 else None
        axis.hlines(
            height,
            group - 0.46,
            group + 0.46,
            colors="black",
            linestyles="dashed",
            linewidth=1,
            label=label,
            zorder=0.9,
        )
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_ylim(bottom=0.1, top=2.5 * axis.get_ylim()[1])
    axis.set_xticks(range(len(features)), [f"d = {d}" for d in features])

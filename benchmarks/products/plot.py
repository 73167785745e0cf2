"""Bars of nanoseconds per kernel entry, one panel for each kernel and number of outputs."""

from pathlib import Path
from typing import Any

_COLOURS = {
    "numpy": "#9e9e9e",
    "torch_whole_block": "#f2b48c",
    "torch": "#d95f02",
    "keops": "#7570b3",
    "daskkern": "#1b9e77",
}
_LABELS = {
    "numpy": "NumPy, as written down",
    "torch_whole_block": "torch, whole block in place",
    "torch": "torch, the fastest of its ways",
    "keops": "KeOps (CPU)",
    "daskkern": "daskkern",
}
_LABEL: dict[str, Any] = {
    "fontsize": 6.5,
    "padding": 1.5,
    "zorder": 5,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.4},
}


def plot_dense(run: dict[str, Any], path: Path) -> None:
    """Write the picture of the dense section of `run` to `path`. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    records = run["sections"]["dense"]
    kernels = list(dict.fromkeys(record["kernel"] for record in records))
    outputs = list(dict.fromkeys(record["n_outputs"] for record in records))
    figure, axes = plt.subplots(
        len(kernels), len(outputs), figsize=(7 * len(outputs), 3.9 * len(kernels)), sharey=True, squeeze=False
    )
    for row, kernel in enumerate(kernels):
        for column, c in enumerate(outputs):
            panel = [r for r in records if (r["kernel"], r["n_outputs"]) == (kernel, c)]
            _draw(axes[row, column], panel, f"{kernel.capitalize()} kernel, {c} output{'s' * (c > 1)}")
        axes[row, 0].set_ylabel("ns per kernel entry (log scale)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 0.955))
    first, machine = records[0], run["machine"]
    figure.suptitle(
        f"K(X, Z) A for {first['n_rows']:,} rows and {first['n_points']:,} points, float32, "
        f"{machine['n_cores']} cores, {run['date']}: lower is better",
        fontsize=12,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw(axis: Any, panel: list[dict[str, Any]], title: str) -> None:
    methods = [name for name in _LABELS if name in panel[0]["methods"]]
    width = 0.84 / len(methods)
    for number, method in enumerate(methods):
        places = [group + (number - (len(methods) - 1) / 2) * width for group in range(len(panel))]
        heights = [record["methods"][method]["ns_per_entry"] for record in panel]
        bars = axis.bar(places, heights, width * 0.94, color=_COLOURS[method], label=_LABELS[method])
        axis.bar_label(
            bars, [f"{height:.2g}" if height < 99.5 else f"{height:.0f}" for height in heights], fontsize=6.5
        )
    for group, record in enumerate(panel):
        entries = record["n_rows"] * record["n_points"]
        height = record["matmul"]["distances_median_seconds"] / entries * 1e9
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
    axis.set_ylim(bottom=0.1)
    axis.set_xticks(range(len(panel)), [f"d = {record['n_features']}" for record in panel])
    axis.set_title(title, fontsize=11)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)

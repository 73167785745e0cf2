"""The style of all plots of figures: sizes, markers, labels, and the colour of each contender."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Run

OURS, GREY = "#1b9e77", "#9e9e9e"
COLOURS = {
    "daskkern EigenPro": "#00441b",
    "daskkern Falkon": "#66a61e",
    "daskkern NystromSGD": "#a6d854",
    "daskkern": OURS,
    "numpy": GREY,
    "scikit-learn": "#386cb0",
    "libsvm": "#80b1d3",
    "torch": "#d95f02",
    "torch_whole_block": "#f2b48c",
    "keops": "#7570b3",
    "xRFM": "#e7298a",
    "paper": "#4d4d4d",
}
"""The colour of each contender in all plots; a name that is a prefix of another comes after it."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h", "<", ">")
SETTINGS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 110,
    "savefig.facecolor": "white",
}


def colour(name: str) -> str:
    """Return the colour of a contender, by the first words of its name."""
    return next((shade for known, shade in COLOURS.items() if name.lower().startswith(known.lower())), GREY)


@contextmanager
def figure(
    path: Path, n_rows: int, n_columns: int, title: str, width: float = 6.0, height: float = 4.0
) -> Iterator[Any]:
    """Yield axes (n_rows, n_columns) of a plot that is written to `path` on exit. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(SETTINGS):
        drawn, axes = plt.subplots(
            n_rows, n_columns, figsize=(width * n_columns, height * n_rows + 0.6), squeeze=False, layout="constrained"
        )
        try:
            yield axes
            drawn.suptitle(title, fontsize=11)
            drawn.savefig(path)
        finally:
            plt.close(drawn)


def where(run: Run) -> str:
    """Return machine and date, for the end of a title."""
    parts = [str(run.machine["cpu"])] if "cpu" in run.machine else []
    parts += [f"{run.machine['n_cores']} cores"] if "n_cores" in run.machine else []
    return ", ".join([*parts, run.date or "date not recorded"])

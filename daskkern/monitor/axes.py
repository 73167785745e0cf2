"""Matplotlib axes in the common style of all plots; matplotlib is optional."""

from typing import Any

from daskkern.errors import SpecError


def new_axes(axes: Any) -> Any:
    """Return `axes`, or new ones of pyplot. Raises SpecError if matplotlib is missing."""
    require_matplotlib()
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def require_matplotlib() -> None:
    """Raise SpecError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise SpecError('a plot needs matplotlib, which is not installed; run: pip install "daskkern[plot]"') from None
    del matplotlib


def plain(axes: Any) -> Any:
    """Return `axes` with the common style of all plots."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis, which shows values from `low` to `high`, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if high > 1000 * low:  # powers of ten suffice
        return
    subs = (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    axis.set_major_locator(LogLocator(10, subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_above(axes: Any, columns: int) -> None:
    """Put the legend above the axes, where it hides no data."""
    axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)


def thousands(axis: Any) -> None:
    """Label an axis with whole numbers and commas."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))

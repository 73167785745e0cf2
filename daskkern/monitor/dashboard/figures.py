"""The plots of the page, and the sources of their data. Colors that depend on the theme are set in the browser."""

from dataclasses import dataclass, field
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Legend, LegendItem, NumeralTickFormatter
from bokeh.plotting import figure

from daskkern.monitor.palette import EIGENVALUES, FLATTENED, OTHER_FIT, PART_COLORS, TRAINING, VALIDATION
from daskkern.monitor.shares import PARTS

_HEIGHT = 300


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns}, name=name)


@dataclass(frozen=True, eq=False)
class Sources:
    """The data of the plots. Column ``x`` is time or epochs, as the viewer chose."""

    batches: Any = field(default_factory=lambda: _source("batches", "x", "loss", "smooth", "rate"))
    epochs: Any = field(default_factory=lambda: _source("epochs", "x", "validation_loss", "validation_score"))
    other_batches: Any = field(default_factory=lambda: _source("other_batches", "x", "smooth", "rate"))
    other_epochs: Any = field(
        default_factory=lambda: _source("other_epochs", "x", "validation_loss", "validation_score")
    )
    shares: Any = field(default_factory=lambda: _source("shares", "epoch", *PARTS))
    spectrum: Any = field(default_factory=lambda: _source("spectrum", "number", "before", "after"))


def _plot(x: str, y: str, **options: Any) -> Any:
    plot = figure(
        height=_HEIGHT,
        sizing_mode="stretch_width",
        x_axis_label=x,
        y_axis_label=y,
        tools="pan,box_zoom,wheel_zoom,reset,save",
        active_drag=None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    plot.toolbar.logo, plot.toolbar.autohide = None, True
    return plot


def _label(plot: Any, *lines: tuple[str, Any], columns: int | None = None) -> None:
    """Put a legend above `plot`, where it hides no data, on one line or in `columns` columns."""
    items = [LegendItem(label=text, renderers=[line]) for text, line in lines]
    legend = Legend(items=items, orientation="horizontal", border_line_color=None, background_fill_color=None)
    legend.padding, legend.margin, legend.spacing = 2, 2, 12
    if columns is not None:
        legend.ncols = columns
    plot.add_layout(legend, "above")


def _hover(plot: Any, renderers: list[Any], *tooltips: tuple[str, str]) -> None:
    plot.add_tools(HoverTool(tooltips=list(tooltips), renderers=renderers, mode="vline", point_policy="snap_to_data"))


def loss_plot(sources: Sources, scale: str) -> Any:
    """Return the plot of training and validation loss with a y axis that is "log" or "linear"."""
    plot = _plot("Time", "Mean loss of a row", y_axis_type=scale)
    plot.line("x", "loss", source=sources.batches, color=TRAINING, alpha=0.35, line_width=1)
    smooth = plot.line("x", "smooth", source=sources.batches, color=TRAINING, line_width=2)
    line = plot.line("x", "validation_loss", source=sources.epochs, color=VALIDATION, line_width=2)
    dots = plot.scatter("x", "validation_loss", source=sources.epochs, color=VALIDATION, size=6)
    plot.line("x", "smooth", source=sources.other_batches, color=OTHER_FIT, line_width=2)
    plot.line("x", "validation_loss", source=sources.other_epochs, color=OTHER_FIT, line_width=2, line_dash="dashed")
    _label(plot, ("training, epoch so far", smooth), ("validation", line))
    _hover(plot, [smooth], ("training loss", "@loss{0.0000}"))
    _hover(plot, [dots], ("validation loss", "@validation_loss{0.0000}"))
    return plot


def score_plot(sources: Sources) -> Any:
    """Return the plot of the validation score."""
    plot = _plot("Time", "Validation score")
    line = plot.line("x", "validation_score", source=sources.epochs, color=VALIDATION, line_width=2)
    dots = plot.scatter("x", "validation_score", source=sources.epochs, color=VALIDATION, size=6)
    plot.line("x", "validation_score", source=sources.other_epochs, color=OTHER_FIT, line_width=2)
    _label(plot, ("on validation rows, after each epoch", line))
    _hover(plot, [dots], ("validation score", "@validation_score{0.0000}"))
    return plot


def rate_plot(sources: Sources) -> Any:
    """Return the plot of rows per second."""
    plot = _plot("Time", "Rows/s")
    line = plot.line("x", "rate", source=sources.batches, color=TRAINING, line_width=2)
    plot.line("x", "rate", source=sources.other_batches, color=OTHER_FIT, line_width=2)
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _label(plot, ("rows per second, over the last 5 s", line))
    _hover(plot, [line], ("rows/s", "@rate{0,0}"))
    return plot


def shares_plot(sources: Sources) -> Any:
    """Return the plot of the parts of the time of each epoch."""
    plot = _plot("Epoch", "Share of the time (%)", y_range=(0, 100))
    bars = plot.vbar_stack(
        list(PARTS),
        x="epoch",
        width=0.8,
        source=sources.shares,
        color=[PART_COLORS[part] for part in PARTS],
        line_color=None,
    )
    plot.xaxis.ticker.min_interval = 1
    _label(plot, *zip(PARTS.values(), bars, strict=True), columns=2)
    plot.add_tools(
        HoverTool(
            tooltips=[("epoch", "@epoch"), *((word, f"@{name}{{0.0}} %") for name, word in PARTS.items())],
            renderers=bars[:1],
        )
    )
    return plot


def spectrum_plot(sources: Sources) -> Any:
    """Return the plot of the eigenvalues before and after preconditioning."""
    plot = _plot("Number of the eigenvalue", "Eigenvalue", x_axis_type="log", y_axis_type="log")
    before = plot.line("number", "before", source=sources.spectrum, color=EIGENVALUES, line_width=2)
    after = plot.line("number", "after", source=sources.spectrum, color=FLATTENED, line_width=2)
    _label(plot, ("of the kernel", before), ("after preconditioning", after))
    _hover(plot, [before], ("number", "@number"), ("before", "@before{0.00e+0}"), ("after", "@after{0.00e+0}"))
    return plot

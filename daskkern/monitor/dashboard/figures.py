"""The plots of the page and their data sources. Colors that depend on the theme are set in the browser."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Legend, LegendItem, NumeralTickFormatter
from bokeh.plotting import figure

from daskkern.monitor.dashboard.changes import set_changed
from daskkern.monitor.palette import EIGENVALUES, FIT_COLORS, FLATTENED, PART_COLORS
from daskkern.monitor.shares import PARTS

MOST_FITS = len(FIT_COLORS)
"""Fits whose curves are drawn over each other: the chosen one in the first color, and others."""
_HEIGHT, _LINE_OF_LEGEND = 300, 30
_LEGEND_COLUMNS = 2
"""A phone has room for two."""
_LONGEST_NAME = 22


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns}, name=name)


class Curves:
    """The curves of one fit. Column ``x`` is time or epochs, as the viewer chose.

    Parameters
    ----------
    prefix : str
        Of the names of the sources.
    """

    def __init__(self, prefix: str = "") -> None:
        self.batches = _source(f"{prefix}batches", "x", "loss", "smooth", "rate")
        self.epochs = _source(f"{prefix}epochs", "x", "validation_loss", "validation_score")

    def clear(self) -> None:
        """Draw nothing."""
        for source in (self.batches, self.epochs):
            source.data = {name: [] for name in source.data}


@dataclass(frozen=True, eq=False)
class Sources:
    """The data of the plots: the curves of the chosen fit, then of those drawn over it, each in the color of its
    place; shares of time and the spectrum of the chosen one."""

    fits: tuple[Curves, ...] = field(
        default_factory=lambda: tuple(Curves(f"{number}_" if number else "") for number in range(MOST_FITS))
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


def _legend(columns: int | None = None) -> Any:
    """Return a legend above a plot, where it hides no data, on one line or in columns."""
    legend = Legend(orientation="horizontal", border_line_color=None, background_fill_color=None)
    legend.padding, legend.margin, legend.spacing = 2, 2, 12
    if columns is not None:
        legend.ncols = columns
    return legend


def _label(plot: Any, *lines: tuple[str, Any], columns: int | None = None) -> None:
    """Put a legend above `plot`, on one line or in columns."""
    legend = _legend(columns)
    legend.items = [LegendItem(label=text, renderers=[line]) for text, line in lines]
    plot.add_layout(legend, "above")


def _hover(plot: Any, renderers: list[Any], *tooltips: tuple[str, str]) -> Any:
    """Show values of lines under the pointer."""
    tool = HoverTool(tooltips=list(tooltips), renderers=renderers, mode="vline", point_policy="snap_to_data")
    plot.add_tools(tool)
    return tool


@dataclass(frozen=True)
class Line:
    """A column that is drawn for each fit, and the words for it.

    Attributes
    ----------
    column : str
    legend, label, form : str
        In the legend where only one fit is drawn, under the pointer, and the format of numbers there.
    """

    column: str
    legend: str
    label: str
    form: str


class CurvePlot:
    """A plot of curves of several fits: a color is a fit; solid lines are of training, dashed ones of validation rows.

    Parameters
    ----------
    sources : Sources
    y, scale : str
        The label of the vertical axis, and "linear" or "log".
    training, validation : Line or None
        A column of the batches, and of the epochs.
    """

    def __init__(
        self, sources: Sources, y: str, scale: str, training: Line | None = None, validation: Line | None = None
    ) -> None:
        self.figure = _plot("Time", y, y_axis_type=scale)
        self._sources, self._training, self._validation = sources, training, validation
        self._words = [line for line in (training, validation) if line is not None]
        self._hovers = [
            _hover(self.figure, [], ("fit", "$name"), (w.label, f"@{w.column}{{{w.form}}}")) for w in self._words
        ]
        self._fits: dict[int, list[Any]] = {}
        """The lines of each place that was ever drawn: each costs the scheduler some milliseconds to make."""
        self._legend = _legend(_LEGEND_COLUMNS)
        self.figure.add_layout(self._legend, "above")
        self._shown: dict[int, str] = {}
        self.name_fits({0: ""})

    def name_fits(self, names: Mapping[int, str]) -> None:
        """Draw the fits at these places with these names, the chosen one at 0."""
        if names == self._shown:
            return
        self._shown = dict(names)
        for place, name in names.items():
            for line in self._lines(place, name):
                set_changed(line, {"name": name})
        if len(names) > 1:
            items = [(shortened(name), self._fits[place][0]) for place, name in sorted(names.items())]
            items += [("dashed: validation", self._fits[0][1])] if len(self._words) > 1 else []
        else:
            items = [(words.legend, line) for words, line in zip(self._words, self._fits[0], strict=True)]
        self._legend.items = [LegendItem(label=text, renderers=[line]) for text, line in items]
        self.figure.height = _HEIGHT + _LINE_OF_LEGEND * max(0, -(-len(items) // _LEGEND_COLUMNS) - 1)

    def _lines(self, place: int, name: str) -> list[Any]:
        """Return the lines of the fit at a place, in the order of the words; new ones get the name."""
        if place not in self._fits:
            curves, look = self._sources.fits[place], {"color": FIT_COLORS[place], "name": name}
            lines = []
            if self._training is not None:
                lines.append(self.figure.line("x", self._training.column, source=curves.batches, line_width=2, **look))
            if self._validation is not None:
                at = {"x": "x", "y": self._validation.column, "source": curves.epochs, **look}
                lines.append(self.figure.line(line_width=2, line_dash="dashed", **at))
                self.figure.scatter(size=5, **at)
            self._fits[place] = lines
            for tool, line in zip(self._hovers, lines, strict=True):
                tool.renderers = [*tool.renderers, line]
        return self._fits[place]


def shortened(name: str) -> str:
    """Return a name of a fit for a legend: its begin and its end, which distinguish the fits of a series."""
    if len(name) <= _LONGEST_NAME:
        return name
    end = _LONGEST_NAME // 3
    return f"{name[: _LONGEST_NAME - end - 1]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def loss_plot(sources: Sources, scale: str) -> CurvePlot:
    """Return the plot of training and validation loss with a y axis that is "log" or "linear"."""
    training = Line("smooth", "training, epoch so far", "training loss", "0.0000")
    validation = Line("validation_loss", "validation", "validation loss", "0.0000")
    plot = CurvePlot(sources, "Mean loss of a row", scale, training, validation)
    chosen = sources.fits[0].batches  # as it was reported; the thick line is smoothed
    plot.figure.line("x", "loss", source=chosen, color=FIT_COLORS[0], alpha=0.35, line_width=1)
    return plot


def score_plot(sources: Sources) -> CurvePlot:
    """Return the plot of the validation score."""
    score = Line("validation_score", "on validation rows, after each epoch", "validation score", "0.0000")
    return CurvePlot(sources, "Validation score", "linear", validation=score)


def rate_plot(sources: Sources) -> CurvePlot:
    """Return the plot of rows per second."""
    rate = Line("rate", "rows per second, over the last 5 s", "rows/s", "0,0")
    plot = CurvePlot(sources, "Rows/s", "linear", training=rate)
    plot.figure.y_range.start = 0
    plot.figure.yaxis.formatter = NumeralTickFormatter(format="0,0")
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

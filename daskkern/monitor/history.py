"""The history of a fit: a table of epochs, and further facts that are saved with the model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from daskkern.display import html_table
from daskkern.events import (
    Event,
    FitFinished,
    FitPreempted,
    FitStarted,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersLeft,
    WorkersLost,
    from_message,
    to_message,
)
from daskkern.monitor.epoch_cells import HEADINGS, cell
from daskkern.monitor.history_axes import draw_histories
from daskkern.row_table import RowTable

_Kind = TypeVar("_Kind")
_NAN = float("nan")
_PLACE = re.compile(
    r"""["']?(?:\w[\w.+-]*:{0,2}://|\b[A-Za-z]:[\\/]|\\\\|(?<!\w)~?/(?=\S)|(?<!\w)\.{1,2}/).*""", re.DOTALL
)
"""An address, a URL or a file path, and all that follows: a path may have blanks, so its end is unknown."""
_RANKS = re.compile(r"\branks? (\d+)")
_ROWS, _ITEMS = 2_000, 1_000
_SHOWN = 5
_LEFT_OUT = "(left out)"


@dataclass(frozen=True)
class EpochRow:
    """One epoch of a history. Values that were not measured are NaN.

    Attributes
    ----------
    epoch : int
        From 1.
    loss : float
        Mean training loss seen during the epoch.
    validation_loss, validation_score : float
        Measured after the epoch; the score is accuracy or R2.
    seconds : float
        Duration of this epoch, validation included.
    elapsed : float
        Seconds from the start of the set-up to the end of the epoch, interruptions by lost workers included, time in
        a queue not.
    rows_per_second : float
    computing, reading, checkpointing, waiting, exchanging : float
        Shares of the epoch's time, as means over the ranks, which add up to 1: see :class:`daskkern.events.EpochTimed`.
        Models that were saved before reading and checkpoints were measured separately count them as computing.
    bytes_sent : int
        From rank 0 to its peers.
    optimality : float
        Distance from the optimum, for solvers that measure it, in the measure that :class:`History` names.
    """

    epoch: int
    loss: float
    validation_loss: float = _NAN
    validation_score: float = _NAN
    seconds: float = _NAN
    elapsed: float = _NAN
    rows_per_second: float = _NAN
    computing: float = _NAN
    reading: float = _NAN
    checkpointing: float = _NAN
    waiting: float = _NAN
    exchanging: float = _NAN
    bytes_sent: int = 0
    optimality: float = _NAN


_NAMES = tuple(item.name for item in fields(EpochRow))
_WHOLE = frozenset({"epoch", "bytes_sent"})


@dataclass(frozen=True)
class Incident:
    """An event of a gang that broke up, grew or resumed, and its time in seconds after the start of the set-up."""

    elapsed: float
    event: Event


@dataclass(frozen=True, eq=False, repr=False)
class History(RowTable[EpochRow]):
    """The history of a fit: a table with a row for each epoch, and single facts.

    ``history["loss"]`` is a column as an array, ``history[-1]`` a row, ``len(history)`` the number of rows, and
    ``to_pandas()`` a DataFrame.

    Attributes
    ----------
    rows : tuple of EpochRow
    started : FitStarted or None
        Sizes and number of ranks; None in models that were saved when histories had only epochs.
    finished : FitFinished or None
    stages : tuple of StageFinished
        The set-up, in the order of its steps.
    spectrum : SpectrumFound or None
        Of the preconditioner, if the solver has one.
    ranks : tuple of RankReported
        For each rank, the report with the most memory.
    incidents : tuple of Incident
    checkpoints : int
    checkpoint_seconds : float
        Time to write them, on the writing rank; training continues meanwhile.
    measure : str
        What the column `optimality` holds, or "".
    """

    row_type = EpochRow
    title = "history"
    rows: tuple[EpochRow, ...] = ()
    started: FitStarted | None = None
    finished: FitFinished | None = None
    stages: tuple[StageFinished, ...] = ()
    spectrum: SpectrumFound | None = None
    ranks: tuple[RankReported, ...] = ()
    incidents: tuple[Incident, ...] = ()
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    measure: str = ""

    def to_pandas(self) -> Any:
        """Return a new pandas.DataFrame with the epoch as its index. SpecError where pandas is not installed."""
        return super().to_pandas().set_index("epoch")

    def _shown(self) -> list[str]:
        """Return the columns in which something was measured."""
        return [name for name in _NAMES if name in _WHOLE or not np.isnan(self[name]).all()]

    def __repr__(self) -> str:
        names = self._shown()
        last = self.rows[-_SHOWN:]
        cells = [names, *([f"{getattr(row, name):.6g}" for name in names] for row in last)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
        title = f"History of {len(self)} epoch{'s' * (len(self) != 1)}" + (
            f", the last {_SHOWN}:" if len(self) > _SHOWN else ":"
        )
        return "\n".join([title, *lines])

    def _repr_html_(self) -> str:
        names = ["epoch", *(name for name in self._shown() if name in HEADINGS)]
        rows = [[f"{row.epoch:,}", *(cell(name, getattr(row, name)) for name in names[1:])] for row in self.rows]
        heads = ["epoch", *(HEADINGS[name] for name in names[1:])]
        return html_table(f"History of {len(self)} epochs", heads, rows)

    def plot(
        self,
        show: str | Sequence[str] = ("loss", "validation_loss"),
        against: str = "epoch",
        axes: Any = None,
        task: str = "",
    ) -> Any:
        """Draw columns over epochs or seconds and return the axes; see :func:`daskkern.plot.history`."""
        return draw_histories([("", task, self)], show, against, axes)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values of bounded size, without NaN; very many epochs are thinned. See `from_json`."""
        single = {"started": self.started, "finished": self.finished, "spectrum": self.spectrum}
        return {
            "history": [_no_nan(asdict(row)) for row in _downsampled(self.rows, _ROWS)],
            "run": {
                **{name: None if event is None else _message(event) for name, event in single.items()},
                "stages": [_message(stage) for stage in self.stages[:_ITEMS]],
                "ranks": [_message(rank) for rank in self.ranks[:_ITEMS]],
                "incidents": [[found.elapsed, _message(found.event)] for found in self.incidents[-_ITEMS:]],
                "checkpoints": self.checkpoints,
                "checkpoint_seconds": self.checkpoint_seconds,
                "measure": self.measure,
            },
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "History":
        """Rebuild it from :meth:`to_json`, also from models that have only epochs, or nothing.

        Raises ValueError, TypeError or KeyError for values that are not a history.
        """
        rows = tuple(EpochRow(**_row(row)) for row in values.get("history", ()))
        run = values.get("run")
        if run is None:
            return cls(rows)
        return cls(
            rows,
            _event(run["started"], FitStarted),
            _event(run["finished"], FitFinished),
            tuple(_found(message, StageFinished) for message in run["stages"]),
            _event(run["spectrum"], SpectrumFound),
            tuple(_found(message, RankReported) for message in run["ranks"]),
            tuple(Incident(float(elapsed), _read(message)) for elapsed, message in run["incidents"]),
            int(run["checkpoints"]),
            float(run["checkpoint_seconds"]),
            str(run["measure"]),
        )


def _downsampled(rows: Sequence[EpochRow], most: int) -> list[EpochRow]:
    """Return at most `most` of `rows`, evenly spaced, with the first and the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[number] for number in np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _no_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with None for NaN and infinity, which JSON does not have."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in values.items()
    }


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    values = {"computing": values.get("working"), **values}  # its name before reading was measured separately
    row = {name: _NAN if values[name] is None else float(values[name]) for name in _NAMES if name in values}
    return {name: int(value) if name in _WHOLE else value for name, value in row.items()}


def _message(event: Event) -> dict[str, Any]:
    """Return the event as JSON values, without addresses, hosts and folders: models are shared with others."""
    message = _no_nan(to_message(_without_places(event)))
    return {key: list(value[:_ITEMS]) if isinstance(value, tuple) else value for key, value in message.items()}


def _without_places(event: Event) -> Event:
    """Return the event with neutral texts instead of those that come from a cluster or an operating system."""
    match event:
        case WorkersLost():
            ranks = ", ".join(dict.fromkeys(_RANKS.findall(event.reason)))
            return replace(event, reason=f"the gang broke up{f' (rank {ranks})' if ranks else ''}")
        case WorkersLeft():
            return replace(event, reason="workers left")
        case FitPreempted():
            return replace(event, reason="another fit came first")
        case RankReported():
            return replace(event, worker=_LEFT_OUT)
        case StageFinished(stage="checkpoint"):
            return replace(event, detail="not up to date")
        case StageFinished():
            return replace(event, detail=_PLACE.sub(_LEFT_OUT, event.detail))
    return event


def _read(message: Mapping[str, Any]) -> Event:
    return from_message({key: _NAN if value is None else value for key, value in message.items()})


def _found(message: Mapping[str, Any], kind: type[_Kind]) -> _Kind:
    event = _read(message)
    if not isinstance(event, kind):
        raise ValueError(f"got a {type(event).__name__} event; expected {kind.__name__}")
    return event


def _event(message: Mapping[str, Any] | None, kind: type[_Kind]) -> _Kind | None:
    return None if message is None else _found(message, kind)

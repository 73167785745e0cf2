"""The events of a fit, as frozen records.

Solvers and trainers emit events; progress bars, histories and dashboards listen. An event is a small flat record of
numbers, strings and tuples of numbers, so that it crosses a Dask comm as a plain message without pickling.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeAlias, get_args, get_type_hints

_LARGEST = 2**63  # numbers beyond are not counts, and no float can be made of some of them

PARTS_OF_TIME = ("computing", "reading", "checkpointing", "waiting", "exchanging")
"""Fields of :class:`EpochTimed` that add up to its seconds."""


@dataclass(frozen=True)
class FitQueued:
    """A fit waits for workers; `reason` is one sentence."""

    reason: str


@dataclass(frozen=True)
class FitStarted:
    """A fit begins on `size` ranks, in so many `groups` that divide each batch, over `n_samples` rows and `n_columns`
    basis columns."""

    solver: str
    n_samples: int
    n_features: int
    n_outputs: int
    n_columns: int
    size: int
    max_epochs: int
    groups: int = 1


@dataclass(frozen=True)
class StageFinished:
    """A set-up stage (landmarks, spectrum, projection, ...) ended after `seconds`; `detail` is one short line."""

    stage: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class BatchFinished:
    """One step. `loss` is the running mean training loss of this epoch, `rows_per_second` its mean rate.

    Steps that follow the last batch, without rows, count on, beyond `n_batches`; `loss` is then that of all rows. Where
    the solver knows how far it is from the optimum, `optimality` is that in its `measure`, and the fit ends at `tol`.
    """

    epoch: int
    batch: int
    n_batches: int
    loss: float
    rows_per_second: float
    measure: str = ""
    optimality: float = float("nan")
    tol: float = 0.0


@dataclass(frozen=True)
class EpochFinished:
    """One pass over the rows. `loss` is the mean training loss seen during it; `validation_loss` and
    `validation_score` (accuracy or R2) are NaN without validation rows. `bytes_sent` counts what rank 0 sent
    to its peers during the epoch."""

    epoch: int
    loss: float
    seconds: float
    validation_loss: float = float("nan")
    validation_score: float = float("nan")
    bytes_sent: int = 0


@dataclass(frozen=True)
class OptimalityMeasured:
    """How far from the optimum the model is after an epoch, in the solver's `measure`; the fit ends at `tol`.

    `note` is a short remark on it.
    """

    epoch: int
    measure: str
    value: float
    tol: float
    note: str = ""


@dataclass(frozen=True)
class EpochTimed:
    """Where the seconds since the end of the epoch before went, as means over the ranks.

    ``reading`` is waiting for rows that were not there yet; ``checkpointing`` is collecting and keeping commits (files
    are written meanwhile); ``waiting`` for slower ranks (``longest_wait``: of the rank that waited most);
    ``exchanging`` in `collectives` collectives, as far as it was not waiting: packing, transfer, addition; and
    ``computing`` all else, validation included. ``ways`` names how sums were taken so far.
    """

    epoch: int
    seconds: float
    computing: float
    reading: float
    checkpointing: float
    waiting: float
    longest_wait: float
    exchanging: float
    collectives: int
    ways: str = ""


@dataclass(frozen=True)
class FitFinished:
    """The fit ended. `reason` is one of "max_epochs", "max_seconds", "early_stopping", "converged", "interrupted".

    `best_epoch` is the epoch whose model is returned, where early stopping chose one or the last one is worse; else 0.
    `note` is a sentence for the user about a fit that has not converged, or got worse; else "".
    """

    reason: str
    epochs: int
    seconds: float
    best_epoch: int = 0
    note: str = ""


@dataclass(frozen=True)
class FitResumed:
    """The ranks, `size` of them in so many `groups`, continue after `batch` batches of epoch number `epoch`."""

    epoch: int
    batch: int
    size: int
    groups: int = 1


@dataclass(frozen=True)
class WorkersLost:
    """A gang has broken up, for a `reason` of one sentence. Attempt number `attempt` to form another begins."""

    reason: str
    attempt: int


@dataclass(frozen=True)
class WorkersJoined:
    """The gang grows: it will be formed again, with `size` ranks, when the ranks that run have committed."""

    size: int


@dataclass(frozen=True)
class WorkersLeft:
    """Workers leave as planned: the gang has committed, and `size` ranks continue without them; `reason` names them."""

    size: int
    reason: str


@dataclass(frozen=True)
class FitPreempted:
    """The fit has committed, handed all its workers over, and waits for others; `reason` says in a clause to whom."""

    reason: str


@dataclass(frozen=True)
class StopRequested:
    """The fit was requested to end early, and has not ended yet; `reason` is one line: by whom, and what follows."""

    reason: str


@dataclass(frozen=True)
class SpectrumFound:
    """The preconditioner is ready. `eigenvalues` are the leading ones of the kernel operator, from a subsample of
    `subsample` rows and divided by it, in descending order; `flattened` are the same after preconditioning. The fit
    takes batches of `batch_size` rows (beyond `critical_batch` larger ones gain little) and steps of size `step`."""

    subsample: int
    eigenvalues: tuple[float, ...]
    flattened: tuple[float, ...]
    batch_size: int
    critical_batch: float
    step: float


@dataclass(frozen=True)
class RankReported:
    """One rank: memory of its process or GPU in use and planned, GPU use (NaN without one), its number of columns."""

    rank: int
    worker: str
    device: str
    memory_bytes: int
    planned_bytes: int
    gpu_use: float = float("nan")
    columns: int = 0


@dataclass(frozen=True)
class CheckpointWritten:
    """A checkpoint after `batch` batches of epoch number `epoch` is complete; writing took `seconds`."""

    epoch: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class CheckpointFailed:
    """A checkpoint could not be written; the fit continues, and an older one is kept. `reason` is one sentence."""

    reason: str


Event: TypeAlias = (
    FitQueued
    | FitStarted
    | StageFinished
    | BatchFinished
    | EpochFinished
    | OptimalityMeasured
    | EpochTimed
    | FitFinished
    | FitResumed
    | WorkersLost
    | WorkersJoined
    | WorkersLeft
    | FitPreempted
    | StopRequested
    | SpectrumFound
    | RankReported
    | CheckpointWritten
    | CheckpointFailed
)
Listener: TypeAlias = Callable[[Event], None]

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}

INTERRUPTED = StopRequested(
    "stopping within a few steps, with the model so far; another Ctrl-C ends at once, without a model"
)
"""What a first Ctrl-C asks for."""


def to_message(event: Event) -> dict[str, Any]:
    """Return the event as a flat dictionary that msgpack and JSON can carry."""
    return {"event": type(event).__name__, **asdict(event)}


def from_message(message: Mapping[str, Any]) -> Event:
    """Rebuild an event from :func:`to_message`. Raises ValueError for an unknown kind or field, or another type."""
    fields = dict(message)
    kind = _KINDS.get(str(fields.pop("event", "")))
    if kind is None:
        raise ValueError(f"{message.get('event')!r} is not a kind of event; known are {', '.join(_KINDS)}")
    types = _types(kind.__name__)
    try:
        return kind(**{name: _typed(value, types.get(name)) for name, value in fields.items()})
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a {kind.__name__} event does not have these fields: {error}") from error


@cache
def _types(kind: str) -> dict[str, Any]:
    return get_type_hints(_KINDS[kind])


def _typed(value: Any, wanted: Any) -> Any:
    """Return `value` as a field of type `wanted` holds it. Raises TypeError where it is of another."""
    number = not isinstance(value, bool)
    if wanted is int and number and isinstance(value, Integral) and abs(int(value)) < _LARGEST:
        return int(value)
    if wanted is float and number and isinstance(value, Real):
        return float(value)
    if wanted is str and isinstance(value, str):
        return value
    if wanted == tuple[float, ...] and isinstance(value, list | tuple):
        return tuple(_typed(number, float) for number in value)
    if wanted is None:
        return value  # of a field that is not known, as the constructor will say
    raise TypeError(f"{type(value).__name__} where {getattr(wanted, '__name__', wanted)} belongs")


def silent(event: Event) -> None:
    """Listen to nothing."""
    del event

"""A listener that records the events of a fit in a :class:`~daskkern.monitor.history.History` and forwards them."""

import time
from collections.abc import Callable, Mapping, Sequence

from daskkern.events import (
    BatchFinished,
    CheckpointWritten,
    EpochFinished,
    EpochTimed,
    Event,
    FitFinished,
    FitPreempted,
    FitResumed,
    FitStarted,
    Listener,
    OptimalityMeasured,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersJoined,
    WorkersLeft,
    WorkersLost,
)
from daskkern.monitor.history import EpochRow, History, Incident
from daskkern.monitor.shares import shares_of


class Recorder:
    """A listener that stores what a history needs. A repeated epoch or stage counts once.

    Parameters
    ----------
    listener : callable
        Called with every event after it was recorded.
    earlier : sequence of EpochFinished
        Epochs of the run that this one continues.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        listener: Listener,
        earlier: Sequence[EpochFinished] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.epochs = list(earlier)
        self.times: list[EpochTimed] = []
        self.finished = FitFinished("max_epochs", 0, 0.0)
        self._listener, self._clock = listener, clock
        self._before = sum(epoch.seconds for epoch in earlier)
        self._started: FitStarted | None = None
        self._begun: float | None = None
        self._ended: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._optimality: dict[int, float] = {}
        self._measure = ""
        self._stages: dict[str, StageFinished] = {}
        self._spectrum: SpectrumFound | None = None
        self._ranks: dict[int, RankReported] = {}
        self._incidents: list[tuple[float, Event]] = []
        self._checkpoints: list[float] = []

    def __call__(self, event: Event) -> None:
        """Record `event` and pass it on."""
        if isinstance(event, BatchFinished):
            self._rates[event.epoch] = event.rows_per_second
        else:
            self._note(event)
        self._listener(event)

    def _note(self, event: Event) -> None:
        match event:
            case FitStarted():
                self._started = event
                self._forget_ranks(event.size)
                self._begun = self._clock() if self._begun is None else self._begun
            case StageFinished():
                self._stages[event.stage] = event
            case EpochFinished():
                self.epochs = [*(epoch for epoch in self.epochs if epoch.epoch < event.epoch), event]
                self._ended[event.epoch] = self._clock()
            case EpochTimed():
                self.times = [*(times for times in self.times if times.epoch < event.epoch), event]
            case OptimalityMeasured():
                self._optimality[event.epoch], self._measure = event.value, event.measure
            case SpectrumFound():
                self._spectrum = event
            case RankReported():
                known = self._ranks.get(event.rank)
                if known is None or known.worker != event.worker or known.memory_bytes < event.memory_bytes:
                    self._ranks[event.rank] = event
            case CheckpointWritten():
                self._checkpoints.append(event.seconds)
            case WorkersLost() | WorkersJoined() | WorkersLeft() | FitPreempted() | FitResumed():
                if isinstance(event, FitResumed):
                    self._forget_ranks(event.size)
                self._incidents.append((self._clock(), event))
            case FitFinished():
                self.finished = event

    def _forget_ranks(self, size: int) -> None:
        """Drop the ranks that a gang of `size` does not have."""
        self._ranks = {rank: report for rank, report in self._ranks.items() if rank < size}

    def complete(
        self, epochs: Sequence[EpochFinished], reason: str, n_epochs: int, best_epoch: int = 0, note: str = ""
    ) -> None:
        """Add events that rank 0 has recorded and that were not received: those of a gang that broke up may be lost."""
        merged = {epoch.epoch: epoch for epoch in self.epochs} | {epoch.epoch: epoch for epoch in epochs}
        self.epochs = [merged[number] for number in sorted(merged)]
        self.finished = FitFinished(reason, n_epochs, self.finished.seconds, best_epoch, note)

    def history(self, setup_s: float) -> History:
        """Return the recorded history of a fit whose set-up took `setup_s` seconds before it reported its start."""
        begun = self._before + setup_s - (0.0 if self._begun is None else self._begun)
        times = {timed.epoch: timed for timed in self.times}
        rows: list[EpochRow] = []
        for epoch in self.epochs:
            earlier = rows[-1].elapsed if rows else 0.0
            ended = self._ended.get(epoch.epoch)
            rows.append(
                EpochRow(
                    epoch.epoch,
                    epoch.loss,
                    epoch.validation_loss,
                    epoch.validation_score,
                    epoch.seconds,
                    earlier + epoch.seconds if ended is None else begun + ended,
                    self._rate(epoch),
                    bytes_sent=epoch.bytes_sent,
                    optimality=self._optimality.get(epoch.epoch, float("nan")),
                    **_shares(times.get(epoch.epoch)),
                )
            )
        return History(
            tuple(rows),
            self._started,
            self.finished,
            tuple(self._stages.values()),
            self._spectrum,
            tuple(self._ranks[rank] for rank in sorted(self._ranks)),
            tuple(Incident(begun + at, event) for at, event in self._incidents),
            len(self._checkpoints),
            sum(self._checkpoints),
            self._measure,
        )

    def _rate(self, epoch: EpochFinished) -> float:
        if epoch.epoch in self._rates or self._started is None or not epoch.seconds > 0:
            return self._rates.get(epoch.epoch, float("nan"))
        return self._started.n_samples / epoch.seconds


def _shares(timed: EpochTimed | None) -> Mapping[str, float]:
    return shares_of([] if timed is None else [timed])

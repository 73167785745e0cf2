"""The scheduler's history of a fit, of bounded size: Dask itself keeps only the last 1000 events.

Messages are in the format of :func:`daskkern.events.to_message`, with the time at which the scheduler received them.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from daskkern.cluster.scheduler.downsampling import Downsampled
from daskkern.events import PARTS_OF_TIME

_EPOCHS = 10_000
_NOTICES = 1_000
_BATCHES = 2_000
_EPOCHS_OF_ENDED = 2_000
"""Epochs kept of a fit that has ended: the scheduler keeps many such fits."""
_RANKS = 10_000
_COLUMNS = ("time", "epoch", "batch", "n_batches", "loss", "rows_per_second")
_BY_EPOCH = frozenset({"EpochFinished", "EpochTimed", "OptimalityMeasured"})
_PACE_S = 60.0
"""The time left follows from the rate of batches over the last so many seconds, and at least half of the run."""


class FitHistory:
    """The history of one fit: all epochs, downsampled batches, notices, the spectrum, and the last report of each rank.

    `version` grows with every message, so that a viewer knows whether there is anything new to draw.
    """

    def __init__(self) -> None:
        self.version = 0
        self.losses: Counter[str] = Counter()
        """How often each worker, by name, was lost while the fit held it."""
        self._batches = Downsampled(_BATCHES)
        self._epochs: dict[tuple[str, int], dict[str, Any]] = {}
        self._notices: list[dict[str, Any]] = []
        self._dropped = 0
        self._written, self._writing_s = 0, 0.0
        self._single: dict[str, dict[str, Any]] = {}
        self.time_shares: dict[str, float] = {}
        """The share of each part of the time in the last epoch."""
        self._ranks: dict[int, dict[str, Any]] = {}
        self._forming_since: float | None = None
        self.formation_s = 0.0
        """Seconds from the last formation of the gang to its first batch."""

    def forming(self) -> None:
        """Record that the ranks of a new gang were submitted."""
        self._forming_since = time.time()

    def note(self, message: Mapping[str, Any]) -> None:
        """Record an event of the fit."""
        self.version += 1
        now, kind = time.time(), str(message["event"])
        kept = {**message, "time": now}
        if kind == "BatchFinished":
            if self._forming_since is not None:
                self.formation_s, self._forming_since = now - self._forming_since, None
            self._forget_from(int(kept["epoch"]), int(kept["batch"]))
            self._batches.add(tuple(kept[name] for name in _COLUMNS))
        elif kind in _BY_EPOCH:
            self._epochs[kind, int(message["epoch"])] = kept
            if kind == "EpochTimed" and float(message["seconds"]) > 0:
                self.time_shares = {part: float(message[part]) / float(message["seconds"]) for part in PARTS_OF_TIME}
            if len(self._epochs) > 3 * _EPOCHS:
                del self._epochs[next(iter(self._epochs))]
        elif kind == "RankReported":
            if 0 <= int(message["rank"]) < _RANKS:
                self._ranks[int(message["rank"])] = kept
        elif kind in ("FitStarted", "SpectrumFound"):
            self._single[kind] = kept
        if kind in ("FitStarted", "FitResumed"):
            self._ranks = {rank: report for rank, report in self._ranks.items() if rank < int(message["size"])}
        if kind == "FitResumed":
            self._forget_after(int(message["epoch"]), int(message["batch"]))
        if kind not in _BY_EPOCH and kind not in ("BatchFinished", "RankReported", "SpectrumFound"):
            self._notice(kept)

    def _notice(self, kept: dict[str, Any]) -> None:
        """Store a notice. Of successive checkpoints only the last is kept: there is one every half minute."""
        if kept["event"] == "CheckpointWritten":
            self._written, self._writing_s = self._written + 1, self._writing_s + float(kept["seconds"])
            if self._notices and self._notices[-1]["event"] == "CheckpointWritten":
                self._notices.pop()
        self._notices.append(kept)
        self._dropped += max(0, len(self._notices) - _NOTICES)
        del self._notices[:-_NOTICES]

    def _forget_from(self, epoch: int, batch: int) -> None:
        """Forget this batch and later ones if it is repeated although no event said that the fit goes back."""
        last = self._batches.last
        if last is not None and (last[1], last[2]) >= (epoch, batch):
            self._forget_after(epoch, batch - 1)

    def _forget_after(self, epoch: int, batch: int) -> None:
        """Forget what will be repeated after `batch` batches of `epoch`."""
        self._batches.keep_while(lambda point: (point[1], point[2]) <= (epoch, batch))
        self._epochs = {key: kept for key, kept in self._epochs.items() if key[1] < epoch}

    def close(self) -> None:
        """Reduce the epochs to an even selection that includes the last: no more will follow."""
        numbers = sorted({epoch for _, epoch in self._epochs})
        step = -(-len(numbers) // _EPOCHS_OF_ENDED)
        if step > 1:
            chosen = {*numbers[::step], numbers[-1]}
            self._epochs = {key: kept for key, kept in self._epochs.items() if key[1] in chosen}
            self.version += 1

    def seconds_left(self, max_epochs: int) -> float:
        """Return the seconds until epoch `max_epochs` ends at the pace of the last batches; NaN while unknown."""
        points = self._batches.points
        if len(points) < 2 or max_epochs < 1:
            return float("nan")
        last = points[-1]
        if last[2] > last[3]:  # of steps after the last batch nobody knows how many will come
            return float("nan")
        since = max(_PACE_S, (last[0] - points[0][0]) / 2)
        first = next(point for point in points if last[0] - point[0] <= since)
        done, before = _passes(last), _passes(first)
        if done <= before or last[0] <= first[0]:
            return float("nan")
        return max(0.0, (max_epochs - done) / (done - before) * (last[0] - first[0]))

    def glance(self) -> dict[str, Any]:
        """Return the small part of :meth:`to_message` that changes every second, and the version of the rest."""
        return {
            "version": self.version,
            "started": self._single.get("FitStarted", {}),
            "ranks": [kept for _, kept in sorted(self._ranks.items())],
            "losses": dict(self.losses),
        }

    def to_message(self) -> dict[str, Any]:
        """Return the history as plain values: columns of batches, and lists of messages."""
        points = self._batches.points
        return {
            **self.glance(),
            "batches": {name: [point[i] for point in points] for i, name in enumerate(_COLUMNS)},
            "epochs": [kept for (kind, _), kept in sorted(self._epochs.items()) if kind == "EpochFinished"],
            "timed": [kept for (kind, _), kept in sorted(self._epochs.items()) if kind == "EpochTimed"],
            "optimality": [kept for (kind, _), kept in sorted(self._epochs.items()) if kind == "OptimalityMeasured"],
            "notices": list(self._notices),
            "notices_dropped": self._dropped,
            "checkpoints": {"count": self._written, "seconds": self._writing_s},
            "spectrum": self._single.get("SpectrumFound", {}),
        }


def _passes(point: tuple[Any, ...]) -> float:
    """Return the completed passes over the rows, in epochs."""
    return float(point[1]) - 1 + float(point[2]) / max(float(point[3]), 1)

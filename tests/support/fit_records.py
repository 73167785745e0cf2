"""Records of fits as the scheduler keeps them."""

from typing import Any

from daskkern.cluster.scheduler.fits import FitRecord
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.events import (
    BatchFinished,
    EpochFinished,
    EpochTimed,
    FitStarted,
    RankReported,
    SpectrumFound,
    to_message,
)

NAMES = ("0123456789ab", "ba9876543210")


def record(fit: str, n_epochs: int, **metadata: Any) -> FitRecord:
    """Return a fit of 20 epochs that runs, `n_epochs` of them done."""
    kept = FitRecord(FitMetadata(fit, **{"name": "flights", "owner": "ada@host", "max_epochs": 20, **metadata}))
    events: list[Any] = [FitStarted("eigenpro", 1000, 8, 1, 100, 2, 20)]
    events += [SpectrumFound(500, (0.5, 0.25, 0.1), (0.1, 0.1, 0.1), 128, 61.5, 12.0)]
    events += [RankReported(rank, f"tcp://h:{rank}", "CPU, 2 threads", 10**9, 2 * 10**9) for rank in (0, 1)]
    for epoch in range(1, n_epochs + 1):
        events += [BatchFinished(epoch, batch, 5, 1 / epoch, 1e4) for batch in range(1, 6)]
        events += [EpochFinished(epoch, 1 / epoch, 2.0, 2 / epoch, 1 - 1 / epoch)]
        events += [EpochTimed(epoch, 2.0, 0.6, 0.3, 0.1, 0.5, 0.6, 0.5, 10)]
    for event in events:
        kept.note(to_message(event))
    return kept

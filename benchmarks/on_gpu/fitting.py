"""A whole fit of generated rows: seconds of its parts, memory against the plan, what its last epoch launched."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.namespace import namespace_for
from daskkern.data.schema.schema import Scaling
from daskkern.events import EpochFinished, Event, OptimalityMeasured, RankReported, StageFinished
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from on_gpu.trace import Trace, counts


@dataclass
class Watched:
    """Collects the events of a fit, and traces its last epoch if `trace` is given."""

    epochs: int
    trace: Trace | None = None
    events: list[Event] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self.trace is None or not isinstance(event, EpochFinished):
            return
        if event.epoch == self.epochs - 1:
            self.trace.start()
        elif event.epoch == self.epochs:
            self.calls = self.trace.stop()


def generated(n: int, d: int, classes: int) -> ArraySource:
    """Return normal rows with classes that depend on two features."""
    rng = np.random.default_rng(n)
    X: HostArray = rng.standard_normal((n, d), np.float32)
    values = X[:, 0] + np.sin(2 * X[:, 1])
    y = np.digitize(values, np.quantile(values[:100_000], np.arange(1, classes) / classes))
    names = tuple(str(code) for code in range(classes))
    return ArraySource(X, y, None, SourceInfo(n, d, "classification", names, Scaling(), None, 1, True))


def measured(source: ArraySource, settings: FitSettings, *, traced: bool = False) -> dict[str, Any]:
    """Fit, and return set-up and epochs in seconds, losses, memory, and with `traced` what :func:`counts` says."""
    about: dict[str, Any] = {}
    watched = Watched(settings.max_epochs)
    if traced:
        try:
            watched.trace = Trace()
        except (ImportError, OSError, RuntimeError) as error:
            about["untraced"] = f"{type(error).__name__}: {error}"[:200]
    begun = time.perf_counter()
    result = fit(source, settings, listener=watched)
    total = time.perf_counter() - begun
    stages = {event.stage: round(event.seconds, 3) for event in watched.events if isinstance(event, StageFinished)}
    done = [event for event in watched.events if isinstance(event, EpochFinished)]
    notes = [
        event.note for event in watched.events if isinstance(event, OptimalityMeasured) and "projections" in event.note
    ]
    if notes:
        about["n_projection_iterations"] = [int(note.split(" iterations")[0].split()[-1]) for note in notes]
    reports = [event for event in watched.events if isinstance(event, RankReported)]
    if reports:
        used, planned = (max(getattr(event, name) for event in reports) for name in ("memory_bytes", "planned_bytes"))
        xp = namespace_for(settings.device)
        if hasattr(xp, "cuda"):
            used = max(used, int(xp.get_default_memory_pool().total_bytes()))  # reports come every few seconds
            xp.get_default_memory_pool().free_all_blocks()  # what it holds is its peak: for the next fit, from nothing
        about |= {"used_bytes": used, "planned_bytes": planned}
        about["ratio_of_used_to_planned"] = round(used / planned, 4) if planned else None
    if traced and "untraced" not in about:
        steps = -(-source.info.n_rows // int(settings.batch_size)) if settings.batch_size != "auto" else 1
        about |= counts(watched.calls, steps) or {"untraced": "the profiler saw no work of a GPU"}
    return {
        "setup_s": stages,
        "epoch_s": [round(event.seconds, 4) for event in done],
        "total_s": round(total, 2),
        "losses": [float(event.loss) for event in done],
        "reason": result.finished.reason,
        **about,
    }

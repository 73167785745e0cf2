"""What a GPU was given and how long it worked, by torch's profiler, which sees all CUDA calls of a process."""

import importlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_WORK = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_CALLS = frozenset(("cuda_runtime", "cuda_driver"))
_WAITS = frozenset(
    f"{prefix}{name}"
    for prefix, names in (
        ("cuda", ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "Memcpy")),
        ("cu", ("CtxSynchronize", "StreamSynchronize", "EventSynchronize")),
    )
    for name in names
)


class Trace:
    """The CUDA calls between :meth:`start` and :meth:`stop`. ImportError where torch is missing."""

    def __init__(self) -> None:
        torch: Any = importlib.import_module("torch.profiler")
        self._profile = torch.profile(activities=[torch.ProfilerActivity.CUDA])

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> list[dict[str, Any]]:
        """Return the events, as Chrome's trace format has them."""
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
        return events


def counts(events: Iterable[Mapping[str, Any]], steps: int) -> dict[str, float]:
    """Return launches and waits of a step, and the share of the time from the first to the last one at work.

    Copies and fills count as launches. Work that overlaps counts once.
    """
    work, waits = [], 0
    for event in events:
        if event.get("cat") in _WORK:
            work.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
        elif event.get("cat") in _CALLS:
            waits += event["name"] in _WAITS
    if not work:
        return {}
    work.sort()
    busy, reached = 0.0, work[0][0]
    for begun, ended in work:
        busy += max(0.0, ended - max(begun, reached))
        reached = max(reached, ended)
    return {
        "n_launches_of_a_step": round(len(work) / steps, 1),
        "n_waits_of_a_step": round(waits / steps, 2),
        "busy_share": round(busy / (reached - work[0][0]), 4) if reached > work[0][0] else 1.0,
    }

"""Steps of a fit on many ranks: seconds, processor time, bytes read from the store, messages and bytes sent."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from distributed import Client
from zarr.storage import LocalStore

from daskkern.basis import RandomFeatures
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import BatchFinished, EpochFinished, Event
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import RankTask, run_rank
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from ranks.counts import Call, by_formula, record_calls

_NO_CACHE = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
_FEATURES = 512
_EPOCHS = 2


def prepared_task(store: Path, batch: int) -> tuple[RankTask, int]:
    """Return what the ranks run, and the bytes of the store's features.

    It is EigenPro over random features, so few that a step is mostly its communication.
    """
    source = StoreSource.at(str(store))
    settings = FitSettings(
        Gaussian(2000.0), Squared(), RandomFeatures(_FEATURES), EigenPro(), 1e-6, _EPOCHS, batch,
        device="cpu", reading="once",
    )  # fmt: skip
    size = sum(path.stat().st_size for path in (store / "X" / "c").rglob("*") if path.is_file())
    return RankTask(FitJob(source, settings), prepare(source, settings, False), _NO_CACHE, 1), size


def measure_steps(comm: DaskCommunicator, task: RankTask, context: RankContext) -> list[dict[str, Any]]:
    """Run a rank; return after each epoch what it has used, read, sent and called."""
    passed: list[dict[str, Any]] = []
    sizes: list[int] = []
    steps = 0
    get, calls = LocalStore.get, record_calls(comm)

    async def counted(self: LocalStore, key: str, *arguments: Any, **named: Any) -> Any:
        found = await get(self, key, *arguments, **named)
        if found is not None and key.startswith("X/c/"):
            sizes.append(len(found))
        return found

    def listen(event: Event) -> None:
        nonlocal steps
        context.emit(event)
        steps += isinstance(event, BatchFinished)
        if isinstance(event, EpochFinished):
            used = {
                "wall": time.perf_counter(),
                "thread": time.thread_time(),
                "process": time.process_time(),
                "read": sum(sizes),
                "messages": comm.messages_sent,
                "bytes": comm.bytes_sent,
                "n_calls": len(calls),
                "n_steps": steps,
            }
            passed.append(used)

    with mock.patch.object(LocalStore, "get", counted):
        run_rank(comm, task, replace(context, emit=listen))
    return [{**used, "calls": calls[: used["n_calls"]]} for used in passed]


def row_of_steps(
    client: Client, work: tuple[RankTask, int], n_ranks: int, link: str, patient: GangSettings
) -> dict[str, Any]:
    """Run the fit on `n_ranks` ranks and return the row of its last epoch."""
    task, store_bytes = work
    begun = time.perf_counter()
    ranks = run_gang(client, measure_steps, task, name="steps", settings=patient)
    seconds = time.perf_counter() - begun
    before, after = ([rank[at] for rank in ranks] for at in (-2, -1))
    used = {
        name: [b[name] - a[name] for a, b in zip(before, after, strict=True)] for name in before[0] if name != "calls"
    }
    calls = [b["calls"][a["n_calls"] :] for a, b in zip(before, after, strict=True)]
    messages, n_bytes = by_formula(calls)
    n = used["n_steps"][0]
    return {
        "n_ranks": n_ranks,
        "link": link,
        "n_steps": n,
        "step_ms": round(1e3 * max(used["wall"]) / n, 3),
        "computing_ms": round(1e3 * float(np.mean(used["thread"])) / n, 3),
        "processor_ms": round(1e3 * sum(used["process"]) / n, 3),
        "read_share_of_store": round(sum(used["read"]) / store_bytes, 4),
        "n_ranks_that_read": sum(read > 0 for read in used["read"]),
        "n_messages": round(sum(used["messages"]) / n, 3),
        "n_messages_by_formula": round(messages / n, 3),
        "sent_mb": round(1e-6 * sum(used["bytes"]) / n, 6),
        "sent_by_formula_mb": round(1e-6 * n_bytes / n, 6),
        "sums_bytes": sums_of(calls[0], n),
        "rows_mb": round(1e-6 * sum(size for each in calls for name, size in each if name == "rows") / n, 6),
        "n_row_messages": round(sum(name == "rows" for each in calls for name, _ in each) / n, 3),
        "gang_seconds": round(seconds, 3),
    }


def sums_of(calls: Sequence[Call], n_steps: int) -> list[int]:
    """Return the bytes of the sums of a step, those that are made in at least every second step."""
    sizes = [size for name, size in calls if name == "sum"]
    return [size for size in dict.fromkeys(sizes) for _ in range(round(sizes.count(size) / n_steps))]

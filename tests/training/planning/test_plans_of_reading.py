"""What a plan says of rows that are read once for all ranks: their bytes, and the time of reading and sending."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.data.rows.shared_batches import MESSAGE_BYTES
from daskkern.data.storage.writer import StoreWriter
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, Falkon
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import MemoryPlan, plan_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.timing import TimePlan, estimate
from tests.support.fits import toy_settings
from tests.support.plans import CENTRES

BUDGET = 1 << 40
RATES = Rates(0.5, 0.4, 0.1, 1e9, 1e9, 1e9, 1e9, 1e-5, 1e-6, 1000, None, 0.1)


def _ahead(**changes: object) -> int:
    plan = plan_memory(replace(CENTRES, ranks=4, sent_row_bytes=100, **changes), BUDGET)  # type: ignore[arg-type]
    return dict(plan.items)["rows read ahead"]


def test_rows_on_their_way_are_in_the_plan() -> None:
    each, once, auto = (_ahead(reading=reading) for reading in ("each", "once", "auto"))
    assert auto == max(each, once)
    window = CENTRES.window_rows * CENTRES.d * CENTRES.itemsize
    assert 2 * min(window, CENTRES.n * CENTRES.d * CENTRES.itemsize) < once
    large = 10**5
    grown = _ahead(reading="once", m=2 * large) - _ahead(reading="once", m=large)
    assert grown == large * (4 * CENTRES.d * CENTRES.itemsize + 5 * 100)  # the messages ahead, and on their way
    small = {m: _ahead(reading="once", m=m) for m in (1, MESSAGE_BYTES // (CENTRES.d * CENTRES.itemsize))}
    assert len(set(small.values())) == 1  # small batches are sent together
    alone = plan_memory(replace(CENTRES, ranks=1, reading="once"), BUDGET)
    assert dict(alone.items)["rows read ahead"] == dict(plan_memory(CENTRES, BUDGET).items)["rows read ahead"]


def _parts(plan: MemoryPlan) -> dict[str, float]:
    time: TimePlan = estimate(plan, RATES, 2)
    return dict(time.stages[1].parts)


@pytest.mark.parametrize("ranks", [1, 2, 4, 256])
def test_the_time_of_the_faster_way_is_expected(ranks: int) -> None:
    def sizes(reading: str) -> MemoryPlan:
        return plan_memory(replace(CENTRES, ranks=ranks, reading=reading, sent_row_bytes=784, window=1), BUDGET)

    each = _parts(sizes("each"))["reading"]
    if ranks == 1:
        assert _parts(sizes("once"))["reading"] == each
        return
    once, auto = _parts(sizes("once"))["reading and sending"], _parts(sizes("auto"))
    assert auto.get("reading", auto.get("reading and sending")) == min(each, once)
    assert once < each
    slow = plan_memory(replace(CENTRES, ranks=ranks, reading="auto", sent_row_bytes=10**6, window=1), BUDGET)
    assert _parts(slow)["reading"] == each


def test_a_plan_knows_how_rows_are_sent(tmp_path: Path) -> None:
    X = np.zeros((50, 6), np.uint8)
    with StoreWriter(tmp_path / "s", n_features=6, task="regression", has_weight=True, dtype="uint8") as writer:
        writer.append(X, X[:, 0] * 1.0, np.ones(50))
    source, settings = StoreSource.at(str(tmp_path / "s")), toy_settings(Landmarks(10), EigenPro(), Squared())
    for changes, reading in (({}, "auto"), ({"reading": "each"}, "each"), ({"virtual_shards": 2}, "each")):
        sizes = upper_bound_plan(source, replace(settings, **changes), 2, 1, BUDGET).sizes  # type: ignore[arg-type]
        assert sizes is not None
        assert (sizes.reading, sizes.sent_row_bytes) == (reading, 6 + 8 + 8)
    by_rows = upper_bound_plan(source, replace(settings, solver=Falkon(), alpha=1e-3), 2, 1, BUDGET)
    each = upper_bound_plan(source, replace(settings, solver=Falkon(), alpha=1e-3, reading="each"), 2, 1, BUDGET)
    assert by_rows.items == each.items

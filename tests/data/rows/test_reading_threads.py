"""Threads that read ahead run in the context of who asked: rows on a worker find their worker by it."""

from contextvars import ContextVar

import numpy as np
import pytest

from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import iter_batches
from daskkern.data.rows.rows import Fields, RowBlock

WORKER: ContextVar[str] = ContextVar("worker")


class WorkersRows(ArrayRows):
    """Rows that only a worker can read."""

    def read(self, start: int, stop: int, fields: Fields = Fields.X | Fields.y) -> RowBlock:
        assert WORKER.get() == "this one"
        return super().read(start, stop, fields)


@pytest.mark.parametrize("readers", [1, 3])
def test_rows_are_read_in_the_context_of_who_asked(readers: int) -> None:
    rows = WorkersRows(np.arange(60.0).reshape(30, 2), np.arange(30.0)[:, None], chunk_rows=4)
    WORKER.set("this one")
    plan = BatchPlan.for_rows(rows, 5, 0)
    fields = Fields.X | Fields.y
    assert sum(len(batch.positions) for batch in iter_batches(rows, plan, 1, fields=fields, readers=readers)) == 30

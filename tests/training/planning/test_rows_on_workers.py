"""The memory plan of a fit counts rows that Dask holds on the workers, in addition to the copy of each rank."""

from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from distributed import Client
from distributed.sizeof import sizeof

from daskkern.basis import Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.estimators.inputs import lazy_source
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.planner import upper_bound_plan
from tests.support.fits import toy_settings

pytestmark = pytest.mark.cluster

N, D, BUDGET = 40_000, 25, 1 << 40
SENT = "rows sent to the worker"


def _held(dask_worker: Any) -> int:
    return sum(int(sizeof(part)) for value in dask_worker.data.values() if isinstance(value, tuple) for part in value)


def _arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)), rng.standard_normal(N)


def _sent() -> RowSource:
    X, y = _arrays()
    info = SourceInfo(N, D, "regression", None, Scaling(), None, 1, True)
    return ArraySource(X, y[:, None], None, info)


def _lazy() -> RowSource:
    X, y = _arrays()
    return lazy_source(da.from_array(X, chunks=(3000, D)), da.from_array(y, chunks=3000), None, "regression")[0]


def _table() -> RowSource:
    X, y = _arrays()
    table = pa.table({**{f"x{k}": X[:, k] for k in range(D)}, "y": y})
    parts = [pads.dataset(table.slice(at, 3000)) for at in range(0, N, 3000)]
    return direct_rows(pads.dataset(parts), RowRoles(target=("y",), task="regression"))[0]


@pytest.mark.parametrize("made", [_sent, _lazy, _table])
def test_rows_on_workers_are_in_the_plan(client2: Client, made: Any) -> None:
    source, settings = made(), toy_settings(Landmarks(10), EigenPro(), Squared())
    assert SENT not in dict(upper_bound_plan(source, settings, 2, 1, BUDGET).items)
    before = client2.run(_held)
    remote, kept = source.for_cluster(client2)
    held = [size - before[worker] for worker, size in client2.run(_held).items()]
    for one in kept:
        one.release()
    planned = dict(upper_bound_plan(remote, settings, 2, 1, BUDGET).items)[SENT]
    assert sum(held) > N * D * 4
    assert max(held) <= planned < 2 * sum(held)

"""A function of the features of all rows: the same values however the rows are shared, by all workers."""

import os
from dataclasses import replace

import dask
import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.backend.current import current
from daskkern.basis import ColumnRequest, LocalRows
from daskkern.data.rows.subset import RowsWithout
from daskkern.kernels import Laplacian, Partitioned
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.setup.shared import RowValues
from tests.support.cluster import local_cluster
from tests.support.fits import toy_source


def _source(n: int = 5000) -> ArraySource:
    X = np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)
    source = toy_source()
    return replace(source, X=X, y=np.zeros(n, np.int64), info=replace(source.info, n_rows=n, n_features=3))


def _first(X: HostArray) -> HostArray:
    return X[:, 0]


def _processes(X: HostArray) -> HostArray:
    return np.full(X.shape[0], os.getpid())


@pytest.mark.parametrize("n_tasks", [1, 2, 3, 1000])
def test_values_are_in_the_order_of_the_rows(n_tasks: int) -> None:
    source = _source()
    found = RowValues(source, "float32", None, chunks=1, n_tasks=n_tasks)(_first)
    np.testing.assert_array_equal(found, source.X[:, 0])


def test_rows_that_are_held_out_have_none() -> None:
    source, held = _source(), np.array([0, 7, 4999])
    found = RowValues(source, "float32", held, n_tasks=2)(_first)
    np.testing.assert_array_equal(found, np.delete(source.X[:, 0], held))


@pytest.mark.parametrize("n_tasks", [1, 4])
def test_leaves_are_those_of_one_pass(n_tasks: int) -> None:
    source, held = _source(), np.arange(0, 5000, 7)
    rows = RowsWithout(source.open("float32"), held)
    request = ColumnRequest(Laplacian(1.0), 0, "float32")
    here = LocalRows(100).columns(rows, request)
    values = RowValues(source, "float32", held, chunks=1, n_tasks=n_tasks)
    there = LocalRows(100).columns(rows, replace(request, map_features=values))
    assert isinstance(there.kernel, Partitioned)
    assert there.kernel.tree.n_leaves > 40
    np.testing.assert_array_equal(there.leaves, here.leaves)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_all_workers_have_a_share() -> None:
    source = _source(200_000)
    with (
        local_cluster(2) as client,
        current(client),
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}),
    ):
        remote, kept = source.for_cluster(client)
        assert kept
        found = RowValues(remote, "float32", None, chunks=1)(_processes)
        assert len(set(found.tolist()) - {os.getpid()}) == 2
        np.testing.assert_array_equal(RowValues(remote, "float32", None, chunks=1)(_first), source.X[:, 0])

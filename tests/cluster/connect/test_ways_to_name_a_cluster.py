"""A fit takes a cluster by address, scheduler file, object, and by clients of either kind."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.core import Server

from daskkern import KernelClassifier, Landmarks
from daskkern.arrays import HostArray
from daskkern.cluster.connect.clients import client_of
from daskkern.errors import ClusterError, SpecError
from daskkern.kernels import Gaussian

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def rows() -> tuple[HostArray, HostArray]:
    X = np.random.default_rng(0).standard_normal((400, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


def fitted(cluster: Any, rows: tuple[HostArray, HostArray]) -> HostArray:
    model = KernelClassifier(Gaussian(2.0), basis=Landmarks(60), max_epochs=2, client=cluster).fit(*rows)
    return np.asarray(model.dual_coef_)


@pytest.fixture(scope="module")
def expected(client2: Client, rows: tuple[HostArray, HostArray]) -> HostArray:
    return fitted(client2, rows)


@pytest.fixture
def unused(client2: Client) -> Iterator[None]:
    """Check that no client is left on the scheduler, nor a default one here."""

    def clients(dask_scheduler: Any = None) -> set[str]:
        return set(dask_scheduler.clients)

    before = client2.run_on_scheduler(clients)
    yield
    assert client2.run_on_scheduler(clients) <= before
    assert client2.submit(max, 1, 2, pure=False).result() == 2


@pytest.mark.long
@pytest.mark.one_in(7)
@pytest.mark.parametrize("form", ["address", "address without protocol", "file", "path", "object", "like a cluster"])
def test_by_address_file_and_object(
    form: str, client2: Client, rows: tuple[HostArray, HostArray], expected: HostArray, unused: None, tmp_path: Path
) -> None:
    address = str(client2.scheduler.address)
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"type": "Scheduler", "address": address}))
    forms = {
        "address": address,
        "address without protocol": address.removeprefix("tcp://"),
        "file": str(file),
        "path": file,
        "object": client2.cluster,
        "like a cluster": SimpleNamespace(scheduler_address=address),
    }
    np.testing.assert_array_equal(fitted(forms[form], rows), expected)


@pytest.mark.long
def test_an_asynchronous_client_serves_in_its_loop_and_from_a_thread(
    cluster2: str, rows: tuple[HostArray, HostArray], expected: HostArray, unused: None
) -> None:
    async def fits() -> None:
        async with Client(cluster2, asynchronous=True, set_as_default=False) as client:
            np.testing.assert_array_equal(fitted(client, rows), expected)
            np.testing.assert_array_equal(await asyncio.to_thread(fitted, client, rows), expected)
            assert await client.submit(max, 3, 4, pure=False) == 4

    asyncio.run(fits())


def test_a_loop_that_must_serve_the_scheduler_is_not_kept_waiting(rows: tuple[HostArray, HostArray]) -> None:
    async def fits() -> HostArray:
        settings = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "threads_per_worker": 1}
        async with (
            LocalCluster(n_workers=1, asynchronous=True, processes=False, **settings) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            for form in (client, cluster):
                with pytest.raises(ClusterError, match=r"fit in a thread: await asyncio\.to_thread"):
                    fitted(form, rows)
            return await asyncio.to_thread(fitted, client, rows)

    assert asyncio.run(fits()).shape == (60, 1)


def test_a_client_that_was_not_awaited_is_told(cluster2: str) -> None:
    async def fits() -> None:
        client = Client(cluster2, asynchronous=True, set_as_default=False)
        with pytest.raises(ClusterError, match="not connected; await it"), client_of(client):
            pass
        await client
        await client.close()

    asyncio.run(fits())


def test_what_names_no_cluster_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    for cluster, kind, sentence in (
        (7, SpecError, "got client=7; expected a Dask client"),
        (empty, ClusterError, r"empty\.json is not a scheduler file"),
        (tmp_path / "none.json", ClusterError, r"none\.json cannot be read: No such file"),
        (SimpleNamespace(scheduler_address="<Not Connected>"), ClusterError, "is not connected; start it"),
        ("tcp://127.0.0.1:1", ClusterError, "no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("http://host:8787/status", ClusterError, "is the address of a page; give that of the scheduler"),
        (
            "localhost",
            ClusterError,
            "got localhost as the address of a scheduler; expected one such as tcp://host:8786",
        ),
        ("foo://host:1", ClusterError, "got foo://host:1 as the address of a scheduler"),
    ):
        with pytest.raises(kind, match=sentence), client_of(cluster, timeout_s=1):
            pass


def test_the_address_of_a_worker_is_no_scheduler(client2: Client) -> None:
    worker = next(iter(client2.scheduler_info()["workers"]))
    with pytest.raises(ClusterError, match="is the address of a worker, not of a scheduler"), client_of(worker):
        pass


def test_the_address_of_a_nanny_is_no_scheduler() -> None:
    """A nanny is a plain server of Dask, as is this one."""

    async def refused() -> str:
        async with Server({}) as server:
            await server.listen("tcp://127.0.0.1:0")
            with pytest.raises(ClusterError) as found:
                await asyncio.to_thread(lambda: client_of(server.address).__enter__())
            return str(found.value)

    assert "is the address of a nanny, not of a scheduler" in asyncio.run(refused())

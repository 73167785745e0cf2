"""What fits must not leave on workers and on the scheduler."""

from typing import Any

import pytest
from distributed import Client, Worker

from daskkern.cluster.gang.worker_plugin import PLUGIN_NAME, registry_of
from tests.support.cluster import wait_until


def left_over(dask_worker: Worker) -> list[str]:
    """What a fit must not leave on a worker: mailboxes, tasks, futures of the worker's own client."""
    tasks = [str(key) for key in dask_worker.state.tasks if str(key).startswith("daskkern")]
    client = dask_worker._client
    futures = [] if client is None else [str(key) for key in client.futures]
    return [*registry_of(dask_worker).mailboxes, *tasks, *futures]


def assert_nothing_left(client: Client) -> None:
    """Wait until no worker holds anything of a fit; a busy machine takes its time."""
    try:
        wait_until(lambda: not any(client.run(left_over).values()), timeout_s=45)
    except TimeoutError:
        pytest.fail(f"a fit has left something on the workers: {client.run(left_over)}")


def held(client: Client) -> tuple[dict[str, Any], list[str]]:
    """Return what fits have left: mailboxes and kept commits on workers, tasks on the scheduler."""

    def on_worker(dask_worker: Any) -> list[str]:
        registry = dask_worker.plugins[PLUGIN_NAME].registry
        return [*registry.mailboxes, *registry.commit_caches]

    def on_scheduler(dask_scheduler: Any) -> list[str]:
        return [str(key) for key in dask_scheduler.tasks if str(key).startswith("daskkern")]

    found = {address: names for address, names in client.run(on_worker).items() if names}
    return found, client.run_on_scheduler(on_scheduler)


def assert_nothing_held(client: Client) -> None:
    wait_until(lambda: held(client) == ({}, []), what=f"a clean cluster; {held(client)} was there")

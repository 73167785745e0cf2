"""Steps of a fit before its ranks start, repeated with other workers where some left, or are too small."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from distributed import Client

from daskkern.cluster.connect.membership import NOTICE_S, BrokenOffError, has_left, live_workers
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.lease import Lease, excluded, refilled, renewed
from daskkern.errors import ClusterError, FitCancelledError, MemoryBudgetError
from daskkern.events import Listener, StageFinished
from daskkern.monitor.formatting import format_bytes

_T = TypeVar("_T")


def steadily(
    client: Client, gang: GangSettings, lease: Lease, stage: Callable[[Lease], _T], listener: Listener
) -> tuple[Lease, _T]:
    """Return the workers' lease and the result of `stage` on it; repeated with others when some left meanwhile, and
    without those that have too little memory for their part of the fit.

    Raises
    ------
    MemoryBudgetError
        When no part of the workers has enough.
    """
    attempts = gang.retries
    while True:
        try:
            return lease, stage(lease)
        except FitCancelledError:
            raise
        except MemoryBudgetError as error:
            lease = _without_small(client, gang, lease, error, listener)
        except Exception as error:  # a worker that leaves meanwhile causes many types of errors
            with suppress(ClusterError):
                for address in lease.addresses:
                    ask_fits(client, "drop", address=address, silence_s=gang.silence_s)
            notice_s = NOTICE_S if isinstance(error, BrokenOffError) else 0.0
            if not attempts or not has_left(client, lease.addresses, notice_s):
                raise
            attempts -= 1
            lease = renewed(client, lease, gang, listener)


def _without_small(
    client: Client, gang: GangSettings, lease: Lease, error: MemoryBudgetError, listener: Listener
) -> Lease:
    """Return the lease without the workers that `error` names, or with a larger worker instead of the smallest.

    Raises `error` where neither can be had.
    """
    small = error.too_small or _smallest(client, lease)
    if not small or not excluded(client, lease, tuple(small), tuple(error.for_now)):
        raise error
    for sentence in small.values():
        listener(StageFinished("workers", 0.0, f"{sentence}; the fit goes on without it"))
    return refilled(client, lease, gang, listener)


def _smallest(client: Client, lease: Lease) -> dict[str, str]:
    """Return the worker with the lowest memory limit, and a sentence on it; {} where the cluster has no larger one."""
    known = live_workers(client)
    limits = {address: _limit(known[address]) for address in lease.addresses if address in known}
    if not limits:
        return {}
    smallest = min(limits, key=limits.__getitem__)
    others = (
        worker
        for address, worker in known.items()
        if address not in limits and (lease.request[1] is None or str(worker["name"]) in lease.request[1])
    )
    if not any(_limit(worker) > limits[smallest] for worker in others):
        return {}
    size = format_bytes(limits[smallest])
    return {smallest: f"worker {smallest} has too little memory for its part of the fit: its limit is {size}"}


def _limit(worker: Mapping[str, Any]) -> float:
    return float(worker.get("memory_limit") or float("inf"))

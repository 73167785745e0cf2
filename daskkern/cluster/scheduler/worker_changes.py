"""Changes of the list of live workers since a given version, for fits that poll it several times a second.

Dask's ``identity`` has all metrics of every worker, 700 kB for a thousand of them.
"""

import time
from collections.abc import Iterable
from typing import Any

from distributed.scheduler import heartbeat_interval

_QUIET = 1.5
"""Heartbeats that are due less than half an interval ago are not missed."""


def worker_changes(workers: Iterable[Any], known: int) -> dict[str, Any]:
    """Return the changes of the live `workers` of a scheduler since version `known`.

    Returns
    -------
    dict
        ``version``; ``workers``, a list of (address, name, status), or None if the version is the known one;
        ``quiet``, the last heartbeats of the workers whose next one is late; ``interval``, the seconds between two
        heartbeats.
    """
    workers, now = list(workers), time.time()
    listed = [(worker.address, str(worker.name), worker.status.name) for worker in workers]
    version, interval = hash(tuple(listed)), heartbeat_interval(len(workers))
    return {
        "version": version,
        "workers": None if version == known else listed,
        "quiet": {w.address: w.last_seen for w in workers if now - w.last_seen > _QUIET * interval},
        "interval": interval,
    }

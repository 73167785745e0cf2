"""Running one function on many workers at once, as the communicating ranks of a gang."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed import Client

from daskkern.cluster.connect.preflight import choose_workers
from daskkern.cluster.gang.gang_client import GangClient
from daskkern.cluster.gang.generation import GangOrder
from daskkern.cluster.gang.hanging_workers import usable_workers
from daskkern.cluster.gang.rank import PerRank, RankMain, payloads_for
from daskkern.cluster.gang.settings import GangSettings
from daskkern.cluster.gang.supervisor import Reform
from daskkern.cluster.gang.worker_plugin import install
from daskkern.cluster.scheduler.event_topics import TOPIC
from daskkern.cluster.scheduler.lease import Lease, admitted
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import ClusterError, SpecError
from daskkern.events import Event, FitQueued, Listener, silent

__all__ = ["GangSettings", "PerRank", "run_gang"]


def run_gang(
    client: Client,
    rank_main: RankMain,
    payload: Any,
    *,
    name: str,
    settings: GangSettings = GangSettings(),
    listener: Listener = silent,
    reform: Reform | None = None,
    lease: Lease | None = None,
    until: ExitStack | None = None,
    commits: bool = True,
) -> list[Any]:
    """Run ``rank_main(communicator, payload, context)`` on each worker and return the results by rank.

    `rank_main` is a function that the workers can import. What rank 0 passes to ``context.emit`` reaches `listener`,
    in order and in this thread. The first interrupt (Ctrl-C) makes ``context.should_stop()`` true on every rank, soon
    but not in the same step, and waits for the results; the second aborts. Ranks agree on when to stop by a
    collective of their own.

    When workers are lost, the ranks are aborted, and `rank_main` restarts on the remaining workers and those that
    came back; on each worker that it ran on before, it finds what it put into ``context.commit_cache``. A rank for
    which ``context.should_regroup()`` is true makes a commit and returns ``Regroup()``: workers have joined or leave.

    Parameters
    ----------
    payload
        Passed to each rank: the same object, or a :class:`PerRank`.
    name
        What the dashboard calls the fit.
    reform
        Makes the payload for other workers than the first ones; None reuses it.
    lease
        The workers assigned to the fit; None requests them, and waits for its turn.
    until
        Ends the gang's hold on `lease` when it closes, for a caller that runs another gang on it; None ends it here.
    commits
        Whether the ranks make commits that outlive them, on request. Without, the fit cannot be preempted.

    Raises
    ------
    ClusterError
        When the gang cannot run, or workers were lost more often than `settings` allows.
    DaskkernError
        What a rank raised, with its type. Other exceptions of a rank are raised as ClusterError, with their text
        and traceback in a note.
    """
    with _workers(client, (rank_main, payload, reform), name, settings, listener, lease) as lease:
        try:
            payloads_for(payload, len(lease.addresses))
        except ClusterError as error:
            raise SpecError(str(error)) from None
        install(client)
        order = _order(lease, name, settings, payload, commits)
        gang_client = GangClient(client, order, settings, listener)
        try:
            gang_client.begin(rank_main, payload, reform)
            report = gang_client.wait()
        finally:
            if until is None:
                gang_client.end()
            else:
                until.callback(gang_client.end)
        if report.error is not None:
            raise report.error
        return list(report.values)


@contextmanager
def _workers(
    client: Client, code: object, name: str, settings: GangSettings, listener: Listener, lease: Lease | None
) -> Iterator[Lease]:
    """Yield the caller's lease, or a new one for the run of this gang. `code` is tried on the workers."""
    if lease is not None:

        def waits(event: Event) -> None:  # who was left out was said when the lease was taken
            if isinstance(event, FitQueued):
                listener(event)

        choose_workers(client, None, None, code, lambda: settings.idle_s, waits)
        yield lease
        return
    usable_workers(client, settings, code, listener)
    with admitted(client, new_metadata(name), settings, listener) as lease:
        yield lease


def _order(lease: Lease, name: str, settings: GangSettings, payload: Any, commits: bool) -> GangOrder:
    fixed = isinstance(payload, PerRank)
    obstacle = ""
    if fixed or settings.retries == 0 or settings.drain_s == 0:
        obstacle = "its ranks cannot be formed again"
    elif not commits:
        obstacle = "it has no checkpoint, and too little memory to keep a commit"
    return GangOrder(
        lease.metadata.fit,
        name,
        f"{TOPIC}{lease.metadata.fit}",
        lease.addresses,
        lease.request[1],
        settings.n_ranks,
        settings.collective_timeout_s,
        settings.start_timeout_s,
        settings.silence_s,
        settings.rejoin_s,
        settings.idle_s,
        settings.retries,
        settings.elastic and not fixed,
        0.0 if fixed or settings.retries == 0 else settings.drain_s,
        uuid.uuid4().hex[:6],
        obstacle,
    )

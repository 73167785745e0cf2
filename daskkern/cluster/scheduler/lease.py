"""The client's side of admission: requests workers from the scheduler, waits for them, and returns them."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from distributed import Client

from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.hanging_workers import equip
from daskkern.cluster.gang.settings import GangSettings
from daskkern.cluster.scheduler.client import ask_fits, install_fits
from daskkern.cluster.scheduler.fits import CANCELLED, FAILED, FINISHED, FitStatus
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.sharing.waiting import waiting_in_words
from daskkern.errors import ClusterError, FitCancelledError, MemoryBudgetError
from daskkern.events import FitQueued, Listener, StageFinished

_POLL_S = 0.25


WorkerRequest: TypeAlias = tuple[int | None, tuple[str, ...] | None, int | None]


class GivenUpError(ClusterError):
    """The driver of a detached fit was taken for lost, and another one has followed it."""


@dataclass(frozen=True)
class Lease:
    """The workers assigned to a fit, in rank order. It holds them until it ends or its client leaves."""

    metadata: FitMetadata
    addresses: tuple[str, ...]
    request: WorkerRequest
    """The requested number of workers, their names, and the bytes that each rank may use; None as in GangSettings."""
    most: int | None = None
    """The most workers that it uses; None is all."""


@contextmanager
def admitted(client: Client, metadata: FitMetadata, settings: GangSettings, listener: Listener) -> Iterator[Lease]:
    """Wait until the scheduler assigns workers to the fit of `metadata`, and return them at the end.

    Parameters
    ----------
    settings
        Which workers, and how many. The wait lasts ``idle_s`` while the cluster has too few, whichever fit uses them,
        and ``rejoin_s`` for all workers that the fit already holds, when some are being restarted.

    Raises
    ------
    ClusterError
        When there are too few workers for too long, or the scheduler is gone.
    MemoryBudgetError
        When all workers are smaller than what a rank may use; those that are smaller are left out otherwise.
    FitCancelledError
        When the fit was cancelled while it waited.
    """
    install_fits(client)
    equip(client, settings.silence_s, listener)
    metadata = metadata.submitted_with(settings.priority, settings.user)
    allowed = _names(client, settings.workers)
    request = (_ranks_with_room(client, settings, allowed, listener), allowed, settings.share_memory)
    finished = "" if metadata.out else FINISHED  # with `out`, the model is still to be written
    with _end_reported(client, metadata, finished):
        yield Lease(metadata, _wait(client, metadata, request, settings, listener), request)


@contextmanager
def concluded(client: Client | None, metadata: FitMetadata) -> Iterator[None]:
    """A context for fitting and writing the model, at whose end the scheduler records how the fit ended."""
    with nullcontext() if client is None else _end_reported(client, metadata, FINISHED):
        yield


@contextmanager
def _end_reported(client: Client, metadata: FitMetadata, finished: str) -> Iterator[None]:
    """Report to the scheduler how the body of the context ended: as `finished`, cancelled or failed."""
    state, problem = finished, ""
    try:
        yield
    except (FitCancelledError, KeyboardInterrupt) as error:
        state, problem = CANCELLED, str(error)
        raise
    except BaseException as error:
        state, problem = FAILED, str(error) or type(error).__name__
        raise
    finally:
        with suppress(ClusterError):  # without a scheduler there is nothing to return
            ask_fits(client, "ended", fit=metadata.fit, state=state, error=problem, asker=client.id)


def narrowed(client: Client, lease: Lease, most: int | None) -> Lease:
    """Return the lease with at most the first `most` workers; the others become free for other fits."""
    addresses = lease.addresses[:most]
    if len(addresses) < len(lease.addresses):
        ask_fits(client, "take", fit=lease.metadata.fit, addresses=list(addresses))
    return Lease(lease.metadata, addresses, lease.request, most)


def renewed(client: Client, lease: Lease, settings: GangSettings, listener: Listener) -> Lease:
    """Return the lease with the current addresses of its workers: some were restarted, or are gone.

    Waits ``rejoin_s`` for all of them; where all have gone, then for others, as :func:`admitted` does.
    """
    begun = time.monotonic()
    while True:
        answer = _ask(client, lease.metadata, lease.request)
        found, late = tuple(answer.get("members", ())), time.monotonic() - begun > settings.rejoin_s
        if not found and late:
            found = _wait(client, lease.metadata, lease.request, settings, listener)
        if len(found) >= len(lease.addresses) or (found and late):
            return narrowed(client, Lease(lease.metadata, found, lease.request), lease.most)
        time.sleep(_POLL_S)


def excluded(client: Client, lease: Lease, addresses: Sequence[str], for_now: Sequence[str]) -> bool:
    """Take these workers from the fit, because they have too little memory; those `for_now` are offered again later.

    Returns False and changes nothing if the fit may use no other worker.
    """
    return bool(ask_fits(client, "exclude", fit=lease.metadata.fit, addresses=list(addresses), for_now=list(for_now)))


def refilled(client: Client, lease: Lease, settings: GangSettings, listener: Listener) -> Lease:
    """Return the lease after workers were excluded, with others in their place where the fit requested a number and
    they are free.

    Waits as :func:`admitted` does where no worker is left to it and others are in use.
    """
    found = _wait(client, lease.metadata, lease.request, settings, listener)
    return narrowed(client, Lease(lease.metadata, found, lease.request), lease.most)


def check_current(client: Client, metadata: FitMetadata) -> None:
    """Raise GivenUpError for the driver of a detached fit that another one has followed."""
    if metadata.detached and ask_fits(client, "given_up", fit=metadata.fit, asker=client.id):
        raise _given_up(metadata)


def check_alone(client: Client, metadata: FitMetadata) -> None:
    """Raise ClusterError for a fit that writes to the same place as another, before anything there is changed."""
    install_fits(client)
    for message in ask_fits(client, "fits"):
        status = FitStatus.from_message(message)
        if (
            status.active
            and metadata.out
            and status.metadata.out == metadata.out
            and status.metadata.fit != metadata.fit
        ):
            raise ClusterError(_rival(status.metadata.fit, metadata.out))


def _given_up(metadata: FitMetadata) -> GivenUpError:
    return GivenUpError(f"another driver has taken over fit '{metadata.name}' ({metadata.fit})")


def _rival(fit: str, out: str) -> str:
    return f"fit {fit} is active and writes to {out}; wait for it, cancel it, or write elsewhere"


def _ask(client: Client, metadata: FitMetadata, request: WorkerRequest) -> dict[str, Any]:
    """Request workers, and return the scheduler's answer. Raises when the fit was cancelled or refused."""
    words = dict(zip(("n_ranks", "allowed", "memory"), request, strict=True))
    answer: dict[str, Any] = ask_fits(client, "ask", card=asdict(metadata), wish=words, asker=client.id)
    if answer.get("given_up"):
        raise _given_up(metadata)
    if answer.get("stop"):
        raise FitCancelledError(f"fit '{metadata.name}' ({metadata.fit}) was cancelled before it had its workers")
    if answer.get("rival"):
        raise ClusterError(_rival(answer["rival"], metadata.out))
    if answer.get("refused"):
        raise ClusterError(str(answer["refused"]))
    return answer


def _wait(
    client: Client, metadata: FitMetadata, request: WorkerRequest, settings: GangSettings, listener: Listener
) -> tuple[str, ...]:
    said, begun = "", time.monotonic()
    enough_at = there_at = begun
    while True:
        answer = _ask(client, metadata, request)
        waited = time.monotonic() - begun
        whole = len(answer["members"]) >= int(answer["held"]) or waited > settings.rejoin_s
        if answer["members"] and whole:
            return tuple(answer["members"])
        if answer["members"] or not answer["held"]:
            there_at = time.monotonic()
        elif time.monotonic() - there_at > settings.rejoin_s:  # all that it was granted have gone: others may do
            ask_fits(client, "ended", fit=metadata.fit, state="", asker=client.id)
            there_at = time.monotonic()
        if answer.get("moves"):
            raise FitCancelledError(f"fit '{metadata.name}' continues to wait on another worker")
        waits = answer.get("ahead") or answer.get("quota")
        missing = int(answer.get("missing", 0)) or int(not waits)  # its workers are being restarted
        enough_at = enough_at if missing else time.monotonic()
        if time.monotonic() - enough_at > settings.idle_s:
            raise ClusterError(
                f"{missing} more workers are needed for fit '{metadata.name}', and none came in {settings.idle_s:g} s; "
                "start workers, or request fewer ranks"
            )
        reason = _reason(answer, missing)
        if reason != said:
            listener(FitQueued(reason))
            said = reason
        time.sleep(_POLL_S)


def _reason(answer: Mapping[str, Any], missing: int) -> str:
    """Return in one sentence what a fit waits for."""
    ahead, preempts = answer.get("ahead", ()), answer.get("preempts", ())
    return waiting_in_words(str(answer.get("quota", "")), missing, ahead, preempts, answer.get("obstacles", {}))


def _names(client: Client, workers: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of workers given by name or address: a restarted worker keeps only its name."""
    if workers is None:
        return None
    alive = live_workers(client)
    return tuple(str(alive[worker]["name"]) if worker in alive else worker for worker in workers)


def _ranks_with_room(
    client: Client, settings: GangSettings, allowed: tuple[str, ...] | None, listener: Listener
) -> int | None:
    """Return the requested number of ranks, or how many workers are left without those that are too small for one.

    Raises MemoryBudgetError where every worker is smaller than what a rank may use.
    """
    memory, n_ranks = settings.share_memory, settings.n_ranks
    if memory is None:
        return n_ranks
    known = {a: w for a, w in live_workers(client).items() if allowed is None or str(w["name"]) in allowed}
    limits = {address: int(worker.get("memory_limit") or 0) for address, worker in known.items()}
    small = {address: limit for address, limit in limits.items() if 0 < limit < memory}
    if small and len(small) == len(known):
        address, limit = max(small.items(), key=lambda item: item[1])
        raise MemoryBudgetError(
            f"a fit that shares its workers declared {memory:,} bytes a rank, and worker {address} has {limit:,}; "
            "declare less with --memory (memory_budget), or start larger workers"
        )
    for address, limit in small.items():
        reason = f"worker {address} has {limit:,} bytes of memory, and each rank of the fit declared {memory:,}"
        listener(StageFinished("workers", 0.0, f"{reason}; the fit goes on without it"))
    return n_ranks if n_ranks is None or n_ranks > len(known) else min(n_ranks, len(known) - len(small))

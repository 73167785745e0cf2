"""Checks before the start of a gang: which workers have this daskkern and can load the code of the ranks.

Workers without this daskkern are left out; they may belong to a cluster that is used for other work, too.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client
from distributed.protocol import pickle

from daskkern.cluster.connect.membership import (
    NOTICE_S,
    BrokenOffError,
    address_of,
    answer_of_scheduler,
    answers_of,
    check_any,
    has_left,
    live_workers,
    ready_workers,
    unreachable,
)
from daskkern.cluster.connect.protocol import PROTOCOL, VERSION
from daskkern.errors import ClusterError, SpecError
from daskkern.events import FitQueued, Listener, StageFinished, silent

_LOAD_S = 60.0
"""How long a worker may take to import daskkern for the first time."""
_POLL_S = 0.2
_ABSENT = (ModuleNotFoundError.__name__, AttributeError.__name__)
"""The errors of a worker without daskkern, and of one whose older version has other modules or functions."""


def choose_workers(
    client: Client,
    n_ranks: int | None,
    workers: Sequence[str] | None,
    code: object,
    patience: Callable[[], float] = lambda: 0.0,
    listener: Listener = silent,
) -> tuple[str, ...]:
    """Return the addresses that a gang will run on, after checking that they can.

    `code` is what the ranks will be sent. It is tried first on every process that will unpickle it, because a
    worker that cannot load a task of its stream closes, and its other work is lost. The function waits for missing
    workers, which may be starting or being restarted, and informs `listener`; meanwhile it calls `patience`, which
    returns for how many seconds altogether.

    Raises
    ------
    ClusterError
        When a worker cannot be used; the message names the worker and the remedy.
    """
    check_client(client)
    for last in (False, False, False, False, True):
        alive = _awaited(client, n_ranks, workers, patience, listener)
        try:
            chosen, others = _checked(client, alive, n_ranks, workers, code)
            _tell_left_out(live_workers(client).keys() - alive.keys(), others, listener)
            return chosen
        except ClusterError as error:
            notice_s = NOTICE_S if isinstance(error, BrokenOffError) else 0.0
            if last or (not has_left(client, alive, notice_s) and ready_workers(client).keys() == alive.keys()):
                raise
            # A worker left during the checks: its answer no longer matters.
    raise AssertionError("unreachable")


def _checked(
    client: Client,
    alive: Mapping[str, Mapping[str, Any]],
    n_ranks: int | None,
    workers: Sequence[str] | None,
    code: object,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the chosen workers, and a sentence on each worker that has not this daskkern, and is left out.

    Raises ClusterError where too few are left, naming all that are left out, and where the user has named one of them.
    """
    check_any(client, alive or live_workers(client))
    chosen = _chosen(alive, n_ranks, workers)
    others = _check_processes(client, list(alive), code)
    able = {address: worker for address, worker in alive.items() if address not in others}
    refused = [sentence for worker, sentence in others.items() if workers is None or worker in chosen]
    if refused and (workers is not None or len(able) < (n_ranks or 1)):
        raise ClusterError("; ".join(refused))
    return _chosen(able, n_ranks, workers), others


def _awaited(
    client: Client,
    n_ranks: int | None,
    workers: Sequence[str] | None,
    patience: Callable[[], float],
    listener: Listener,
) -> dict[str, Mapping[str, Any]]:
    """Return the workers that start tasks, after waiting for as many as are requested."""
    begun, said = time.monotonic(), 0.0
    alive = ready_workers(client)
    while not _are_there(alive, n_ranks, workers):
        patience_s = patience()
        if time.monotonic() - begun >= patience_s:
            break
        if patience_s != said:
            listener(FitQueued(f"waiting up to {patience_s:g} s for workers that are not there yet"))
            said = patience_s
        time.sleep(_POLL_S)
        alive = ready_workers(client)
    return alive


def _tell_left_out(paused: Collection[str], others: Mapping[str, str], listener: Listener) -> None:
    for address in sorted(paused):
        listener(StageFinished("workers", 0.0, f"worker {address} is paused for memory and is left out"))
    for sentence in others.values():
        listener(StageFinished("workers", 0.0, f"{sentence}; it is left out"))


def check_client(client: Client) -> None:
    """Raise ClusterError for a client that a fit cannot use to wait."""
    if client.asynchronous:
        raise ClusterError(
            "this Dask client is asynchronous, but a fit blocks; make one with Client(address) without "
            "asynchronous=True, or call the fit in a thread"
        )
    if client.status != "running":
        raise ClusterError(unreachable(client, f"the client is {client.status}"))


def _are_there(alive: Mapping[str, Mapping[str, Any]], n_ranks: int | None, workers: Sequence[str] | None) -> bool:
    names = alive.keys() | {str(worker["name"]) for worker in alive.values()}
    return len(alive) >= (n_ranks or 1) and names.issuperset(workers or ())


def _chosen(
    alive: Mapping[str, Mapping[str, Any]], n_ranks: int | None, workers: Sequence[str] | None
) -> tuple[str, ...]:
    names = {str(worker["name"]): address for address, worker in alive.items()}
    requested = list(alive) if workers is None else [names.get(name, name) for name in workers]
    missing = [address for address in requested if address not in alive]
    if missing:
        raise ClusterError(
            f"got the workers {', '.join(missing)}, which the cluster does not have, or which are paused for memory; "
            f"expected some of {', '.join(alive)}"
        )
    if len(set(requested)) < len(requested):
        raise SpecError("got the same worker twice; expected different ones: one worker runs one rank")
    if n_ranks is None:
        return tuple(requested)
    if n_ranks < 1:
        raise SpecError(f"got n_ranks={n_ranks}; expected at least one rank")
    if n_ranks > len(requested):
        raise ClusterError(
            f"got n_ranks={n_ranks} for {len(requested)} workers; start more workers, or request fewer ranks"
        )
    return tuple(requested[:n_ranks])


@dataclass(frozen=True)
class _Answer:
    """A process's report: the version of daskkern it imports, and why it cannot load the code ("" if it can)."""

    version: str
    problem: str
    protocol: int = 0
    """Version of the messages that the process has loaded."""


def _probe(code: bytes) -> _Answer:
    try:
        pickle.loads(code)
    except Exception as error:  # whatever the modules of the code raise while they are imported
        return _Answer(VERSION, f"{type(error).__name__}: {error}", PROTOCOL)
    return _Answer(VERSION, "", PROTOCOL)


def _probing(code: bytes) -> Callable[[], Awaitable[_Answer]]:
    """Return a function that probes a worker from a thread, so that it sends heartbeats while daskkern is imported.

    It is a closure because it must be pickled by value: by name, it would be imported in the event loop.
    """
    probe = pickle.dumps(_probe)

    async def ask() -> _Answer:
        answer: _Answer = await asyncio.to_thread(lambda: pickle.loads(probe)(code))
        return answer

    return ask


def _check_processes(client: Client, workers: Sequence[str], code: object) -> dict[str, str]:
    """Raise ClusterError if the scheduler has another daskkern, or it or a worker with this one cannot load `code`.

    All workers of the cluster are checked, since Dask installs a plugin on all of them; and the scheduler, which
    unpickles the tasks that pass through it. Return a sentence on each worker that has another daskkern, or none.
    """
    data = pickle.dumps(code)
    answers = answers_of(client, workers, _LOAD_S, _probing(data))
    scheduler = answer_of_scheduler(client, _probe, code=data)
    others = {worker: _difference(f"worker {worker}", answers.get(worker)) for worker in workers}
    for worker in workers:
        if not others[worker]:
            _check_answer(f"worker {worker}", answers.get(worker))
    _check_answer(f"the scheduler at {address_of(client)}", scheduler)
    return {worker: sentence for worker, sentence in others.items() if sentence}


def _difference(who: str, answer: object) -> str:
    """Return the sentence on a process that has another daskkern than this one, or none; "" for any other answer."""
    if isinstance(answer, BaseException) and any(name in repr(answer) for name in _ABSENT):
        return f"{who} cannot import daskkern ({answer}); install daskkern=={VERSION} in its environment and restart it"
    if isinstance(answer, _Answer) and answer.version != VERSION:
        return (
            f"{who} has daskkern {answer.version} and this process has {VERSION}; "
            "install the same version on both and restart it"
        )
    if isinstance(answer, _Answer) and answer.protocol != PROTOCOL:
        return (
            f"{who} has loaded another daskkern than is installed now: it speaks version "
            f"{answer.protocol or 'unknown'} of the messages and this process version {PROTOCOL}; restart the older"
        )
    return ""


def _check_answer(who: str, answer: object) -> None:
    if isinstance(answer, TimeoutError):
        raise ClusterError(f"{who} does not answer; restart it, and fit again")
    if _difference(who, answer):
        raise ClusterError(_difference(who, answer))
    if isinstance(answer, OSError):
        raise BrokenOffError(
            f"{who} was lost while it loaded daskkern, as one is that has too little memory for it; see its log, and "
            "restart it with more if that was the reason"
        )
    if not isinstance(answer, _Answer):
        raise ClusterError(f"{who} cannot report its daskkern: {answer!r}; restart it")
    if answer.problem:
        raise ClusterError(
            f"{who} cannot load what the ranks run ({answer.problem}); install that module there, "
            "or send it with client.upload_file, and fit again"
        )

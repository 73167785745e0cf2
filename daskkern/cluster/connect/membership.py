"""The live workers of a cluster, and calls to its scheduler and workers, with deadlines."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from distributed import Client
from distributed.comm.core import CommClosedError

from daskkern.cluster.connect.protocol import handler
from daskkern.errors import ClusterError

ANSWER_S = 300.0
"""How long the scheduler may leave a question unanswered while its connection is intact: it is busy, and the ranks of a
fit need nothing from it meanwhile. When it has ended, or packets no longer reach it, its connection breaks."""
_STATUS_S = 0.25
_LOOK_S = 0.1
NOTICE_S = 2.0
"""How long the scheduler may take to notice that a worker whose connection broke is gone."""
_RUN_S = 120.0
"""How long a scheduler or a worker may take to answer a call."""


class BrokenOffError(ClusterError):
    """The connection to a process broke during a call: it is gone, which the scheduler may not know yet."""


def ask_scheduler(client: Client, question: str, **arguments: Any) -> Any:
    """Call the scheduler's handler `question`, and wait for a scheduler that is busy.

    Raises
    ------
    ClusterError
        When the connection to it has broken, or it does not answer for `ANSWER_S`.
    """
    deadline = time.monotonic() + ANSWER_S
    while True:
        if client.status != "running":
            raise ClusterError(unreachable(client, f"the client is {client.status}"))
        try:
            return client.sync(_answered, client, getattr(client.scheduler, question), arguments, deadline)
        except (OSError, TimeoutError, RuntimeError) as error:
            if not _may_be_busy(error) or time.monotonic() >= deadline:
                raise ClusterError(unreachable(client, f"{type(error).__name__}: {error}".rstrip(": "))) from error
            time.sleep(_STATUS_S)  # a connection that broke shows in the status of the client a moment later


async def _answered(
    client: Client, call: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any], deadline: float
) -> Any:
    """Await the answer until `deadline`, for as long as the client's own connection is intact."""
    answer = asyncio.ensure_future(call(**arguments))
    try:
        while not answer.done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"no answer in {ANSWER_S:g} s")
            if client.status != "running":
                raise CommClosedError(f"the client is {client.status}")
            await asyncio.wait([answer], timeout=min(_STATUS_S, left_s))
        return answer.result()
    finally:
        answer.cancel()


def _may_be_busy(error: Exception) -> bool:
    """Return whether a new attempt may succeed: a busy scheduler does not take new connections."""
    return isinstance(error, CommClosedError | TimeoutError) or "timed out" in str(error).lower()


def live_workers(client: Client) -> dict[str, Mapping[str, Any]]:
    """Return the workers that the scheduler counts as alive, by address, in the order they joined.

    Not ``client.scheduler_info``: a periodic callback of the client empties what it returns.
    """
    workers: dict[str, Mapping[str, Any]] = ask_scheduler(client, "identity", n_workers=-1)["workers"]
    return {address: worker for address, worker in workers.items() if worker["status"] in ("running", "paused")}


def has_left(client: Client, addresses: Collection[str], patience_s: float = 0.0) -> bool:
    """Return whether one of the workers has left the cluster; at once when one has, else after `patience_s`.

    A caller of a worker that was just killed may notice it before the scheduler does.
    """
    until = time.monotonic() + patience_s
    while True:
        if not live_workers(client).keys() >= set(addresses):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)


def ready_workers(client: Client) -> dict[str, Mapping[str, Any]]:
    """Return the live workers that start tasks: those that are not paused for memory."""
    return {address: worker for address, worker in live_workers(client).items() if worker["status"] == "running"}


def check_any(client: Client, alive: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ClusterError when no workers are alive, or all are paused for memory."""
    if alive and all(worker["status"] == "paused" for worker in alive.values()):
        raise ClusterError(
            f"all {len(alive)} workers of the cluster at {address_of(client)} are paused, because their memory is "
            "full: release data there, or start workers with more memory, and fit again"
        )
    if not alive:
        raise ClusterError(
            f"the cluster at {address_of(client)} has no workers; start some with "
            f"'dask worker {address_of(client)}' or cluster.scale(n), and fit again"
        )


def tell_workers(client: Client, addresses: Sequence[str], verb: str, **message: Any) -> None:
    """Send a message to daskkern's handler `verb` on the workers at `addresses`, which must be alive."""
    ask_scheduler(client, "broadcast", msg={"op": handler(verb), **message}, workers=addresses, on_error="ignore")


def run_on(client: Client, workers: Sequence[str], function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Return ``function(*arguments)`` of each worker, run in its event loop; each has two minutes to answer.

    ``Client.run`` has no deadline: one worker that hangs would block the caller for ever.

    Raises
    ------
    ClusterError
        When a worker did not answer in time, or was lost (BrokenOffError); the message names the first.
    Exception
        What the function raised on a worker.
    """
    answers = answers_of(client, workers, _RUN_S, function, *arguments)
    for worker, answer in answers.items():
        if isinstance(answer, TimeoutError):
            raise ClusterError(f"worker {worker} does not answer in {_RUN_S:g} s; restart it, and fit again")
        if isinstance(answer, CommClosedError):
            raise BrokenOffError(f"worker {worker} was lost during a call ({answer}); fit again") from answer
        if isinstance(answer, BaseException):
            raise answer
    return answers


def answers_of(
    client: Client, workers: Sequence[str], timeout_s: float, function: Callable[..., Any], *arguments: Any
) -> dict[str, Any]:
    """Return what each worker answers, or the exception; see :func:`run_on`."""

    async def one(worker: str) -> Any:
        try:
            answer = client._run(function, *arguments, workers=[worker], on_error="return")
            return (await asyncio.wait_for(answer, timeout_s))[worker]
        except Exception as error:
            return error

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(one(worker) for worker in workers))

    return dict(zip(workers, client.sync(all_of_them), strict=True))


def answer_of_scheduler(client: Client, function: Callable[..., Any], **arguments: Any) -> Any:
    """Return ``function(**arguments)``, run in the scheduler's process, or the exception."""
    try:
        return client.sync(client._run_on_scheduler, function, callback_timeout=_RUN_S, **arguments)
    except Exception as error:  # as the scheduler raised it
        return error


def address_of(client: Client) -> str:
    """Return the address of the client's scheduler, "?" for none."""
    scheduler = client.scheduler
    return "?" if scheduler is None else str(scheduler.address)


def unreachable(client: Client, found: str) -> str:
    """Return the message that the scheduler cannot be reached, with the cause `found`."""
    return (
        f"the Dask scheduler at {address_of(client)} cannot be reached ({found}); "
        "see that it runs, connect a new client, and fit again"
    )

"""Who is in the cluster, and whether it can run a fit: asked before the start, and while one runs."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from distributed import Client

from daskkern.errors import ClusterError, SpecError

_ANSWER_S = 15.0
"""How long a scheduler or a worker may take to answer a question."""


def ask_scheduler(client: Client, question: str, **arguments: Any) -> Any:
    """Call the scheduler's handler `question`.

    Raises
    ------
    ClusterError
        When it does not answer.
    """
    if client.status != "running":
        raise ClusterError(_unreachable(client, f"the client is {client.status}"))
    try:
        return client.sync(getattr(client.scheduler, question), callback_timeout=_ANSWER_S, **arguments)
    except (OSError, TimeoutError, RuntimeError) as error:
        raise ClusterError(_unreachable(client, f"{type(error).__name__}: {error}".rstrip(": "))) from error


def live_workers(client: Client) -> dict[str, Mapping[str, Any]]:
    """Return the workers that the scheduler counts as alive, by address, in the order they joined.

    Not ``client.scheduler_info``: a periodic callback of the client empties what it returns.
    """
    workers: dict[str, Mapping[str, Any]] = ask_scheduler(client, "identity", n_workers=-1)["workers"]
    return {address: worker for address, worker in workers.items() if worker["status"] in ("running", "paused")}


def tell_workers(client: Client, addresses: Sequence[str], verb: str, **message: Any) -> None:
    """Send a message to daskkern's handler `verb` on the workers of `addresses` that are alive."""
    alive = live_workers(client)
    reachable = [address for address in addresses if address in alive]
    ask_scheduler(client, "broadcast", msg={"op": f"daskkern_{verb}", **message}, workers=reachable, on_error="ignore")


def choose_workers(client: Client, n_ranks: int | None, workers: Sequence[str] | None) -> tuple[str, ...]:
    """Return the addresses that a gang will run on, after checking that they can.

    Raises
    ------
    ClusterError
        A sentence that names the worker and the remedy.
    """
    _check_client(client)
    alive = live_workers(client)
    if not alive:
        raise ClusterError(
            f"the cluster at {_address(client)} has no workers; start some with "
            f"'dask worker {_address(client)}' or cluster.scale(n), and fit again"
        )
    chosen = _chosen(alive, n_ranks, workers)
    _check_versions(client, list(alive))
    return chosen


def _check_client(client: Client) -> None:
    if client.asynchronous:
        raise ClusterError(
            "this Dask client is asynchronous, and a fit waits; make one with Client(address) without "
            "asynchronous=True, or call the fit in a thread"
        )
    if client.status != "running":
        raise ClusterError(_unreachable(client, f"the client is {client.status}"))


def _chosen(
    alive: Mapping[str, Mapping[str, Any]], n_ranks: int | None, workers: Sequence[str] | None
) -> tuple[str, ...]:
    names = {str(worker["name"]): address for address, worker in alive.items()}
    asked = list(alive) if workers is None else [names.get(name, name) for name in workers]
    missing = [address for address in asked if address not in alive]
    if missing:
        raise ClusterError(
            f"the fit was asked to run on {', '.join(missing)}, which the cluster does not have; "
            f"it has {', '.join(alive)}"
        )
    if len(set(asked)) < len(asked):
        raise SpecError("the fit was given the same worker twice; one worker runs one rank")
    if n_ranks is None:
        return tuple(asked)
    if n_ranks < 1:
        raise SpecError(f"n_ranks={n_ranks} was asked; a gang has at least one rank")
    if n_ranks > len(asked):
        raise ClusterError(
            f"{n_ranks} ranks were asked and {len(asked)} workers are there; start more workers, or ask for fewer ranks"
        )
    return tuple(asked[:n_ranks])


@dataclass(frozen=True)
class _Probe:
    """What a worker answers: the daskkern it imports."""

    version: str


def _probe() -> _Probe:
    return _Probe(package_version())


def package_version() -> str:
    """Return the version of the installed package; a source tree that was never installed is "source"."""
    try:
        return version("daskkern")
    except PackageNotFoundError:
        return "source"


def _check_versions(client: Client, addresses: Sequence[str]) -> None:
    """Refuse workers without this daskkern. All workers of the cluster are asked: Dask gives a plugin to all."""
    try:
        # Client.run has no deadline of its own; this is its body.
        answers = client.sync(
            client._run, _probe, workers=list(addresses), on_error="return", callback_timeout=2 * _ANSWER_S
        )
    except TimeoutError:
        raise ClusterError(
            f"one of the workers {', '.join(addresses)} does not answer; restart it, and fit again"
        ) from None
    ours = package_version()
    for address in addresses:
        answer = answers.get(address)
        if isinstance(answer, ModuleNotFoundError):
            raise ClusterError(
                f"worker {address} cannot import {answer.name or 'daskkern'}; install daskkern=={ours} in its "
                "environment and restart it"
            )
        if not isinstance(answer, _Probe):
            raise ClusterError(f"worker {address} cannot be asked about daskkern: {answer!r}; restart it")
        if answer.version != ours:
            raise ClusterError(
                f"worker {address} has daskkern {answer.version} and this process has {ours}; "
                "install the same version on both and restart the worker"
            )


def _address(client: Client) -> str:
    scheduler = client.scheduler
    return "?" if scheduler is None else str(scheduler.address)


def _unreachable(client: Client, found: str) -> str:
    return (
        f"the Dask scheduler at {_address(client)} cannot be reached ({found}); "
        "see that it runs, connect a new client, and fit again"
    )

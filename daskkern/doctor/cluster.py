"""Inspection of a cluster: the machines of its workers, and the versions on its scheduler."""

import asyncio
from dataclasses import dataclass
from typing import Any

from distributed import Client

from daskkern.cluster.connect.membership import answer_of_scheduler, answers_of, live_workers
from daskkern.doctor.machine import Machine, inspect_machine
from daskkern.doctor.packages import Package, inspect_packages

_LOOK_S = 60.0


@dataclass(frozen=True)
class WorkerReport:
    """The report of one worker.

    Attributes
    ----------
    address, name : str
    threads, memory_limit : int
        As the worker was started; 0 bytes means no limit.
    machine : Machine or None
        Its report on its machine; None if it did not answer.
    problem : str
        Why it did not answer, or "".
    unreachable : bool
        Whether it could not be reached at all, or not in time.
    """

    address: str
    name: str
    threads: int
    memory_limit: int
    machine: Machine | None
    problem: str
    unreachable: bool = False


@dataclass(frozen=True)
class ClusterReport:
    """The report of a cluster: its scheduler with its packages, or why they are unknown, and its workers."""

    scheduler: str
    packages: tuple[Package, ...]
    problem: str
    workers: tuple[WorkerReport, ...]


def inspect_cluster(client: Client) -> ClusterReport:
    """Query the scheduler and every live worker concurrently.

    Raises
    ------
    ClusterError
        When the scheduler does not answer.
    """
    alive = live_workers(client)
    answers = answers_of(client, list(alive), _LOOK_S, _look)
    workers = tuple(_report(address, known, answers[address]) for address, known in alive.items())
    workers = tuple(sorted(workers, key=lambda worker: (len(worker.name), worker.name)))  # 2 before 10
    packages = answer_of_scheduler(client, inspect_packages)
    address = "?" if client.scheduler is None else str(client.scheduler.address)
    if isinstance(packages, BaseException):
        return ClusterReport(address, (), _sentence(packages), workers)
    return ClusterReport(address, packages, "", workers)


async def _look(dask_worker: Any) -> Machine:
    """Inspect the machine in a thread: the worker's event loop serves fits meanwhile."""
    return await asyncio.to_thread(inspect_machine, str(dask_worker.local_directory))


def _report(address: str, known: Any, answer: Any) -> WorkerReport:
    machine = answer if isinstance(answer, Machine) else None
    problem = "" if machine is not None else _sentence(answer)
    name, threads, limit = str(known["name"]), int(known["nthreads"]), int(known["memory_limit"])
    return WorkerReport(address, name, threads, limit, machine, problem, unreachable=isinstance(answer, OSError))


def _sentence(answer: object) -> str:
    if isinstance(answer, TimeoutError):
        return f"it does not answer in {_LOOK_S:g} s"
    if "ModuleNotFoundError" in repr(answer) or "No module named" in str(answer):
        return f"it cannot import this daskkern ({answer})"
    return f"{type(answer).__name__}: {answer}"

"""Fixtures that many tests share: small clusters, started once a session."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from distributed import Client
from hypothesis import settings

from tests.support.cluster import fork_workers, local_cluster, wait_until
from tests.support.object_server import ObjectServer, object_server
from tests.support.processes import (
    described,
    end,
    keep_bytecode,
    let_interrupts_through,
    mark_run,
    marked_processes,
    share_cores,
)
from tests.support.runs.dealing import Dealing
from tests.support.runs.long_waits import LongWaits
from tests.support.runs.repetitions import in_share, mark_repetitions, share
from tests.support.runs.steady_clock import ClockSteps, use_steady_clock
from tests.support.runs.stuck_clusters import busy_workers
from tests.support.runs.stuck_clusters import described as described_clusters

# No deadline: a busy machine is no failure. Fixed examples: a clone's tests never fail by chance.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, derandomize=False)
_FRESH_RUNS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let repeated cases be divided: N runs with the shares 1/N to N/N run each of them once."""
    words = "run the K-th of N shares of the repeated cases"
    parser.addoption("--share", type=share, default=(1, 1), metavar="K/N", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Run the laws on the same examples every time, and on new ones in runs that ask for slow tests.

    Ctrl-C works as in a terminal; what the run starts is marked as its own, leaves cores to others and finds modules
    compiled; workers of Dask are forked, and go by a clock that nobody sets. What takes long is named while it runs.
    """
    settings.load_profile("fresh" if _slow(config) else "fixed")
    keep_bytecode()
    let_interrupts_through()
    mark_run()
    share_cores()
    fork_workers()
    use_steady_clock()
    if not hasattr(config, "workerinput"):  # of xdist: its processes do not print
        config.pluginmanager.register(LongWaits(config))
        config.pluginmanager.register(ClockSteps(config))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each law in runs of slow tests: every repetition draws other examples."""
    if _slow(metafunc.config) and hasattr(metafunc.function, "hypothesis"):
        metafunc.fixturenames.append("fresh_run")
        runs = [pytest.param(run, marks=pytest.mark.slow) for run in range(_FRESH_RUNS)]
        metafunc.parametrize("fresh_run", runs, ids=lambda run: f"fresh{run}", scope="session")


@pytest.fixture(scope="session")
def fresh_run(request: pytest.FixtureRequest) -> int:
    """Number of a repetition of a law."""
    return int(request.param)


def _slow(config: pytest.Config) -> bool:
    return str(config.getoption("markexpr")).strip() == "slow"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Dealing | None:
    """Deal long tests one by one, which go last: they keep all processes busy to the end."""
    return Dealing(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that the default run leaves out, and leave out repeated ones of other shares."""
    mark_repetitions(items)
    part, parts = config.getoption("share")
    left = [item for item in items if item.get_closest_marker("repeated") and not in_share(item.nodeid, part, parts)]
    if left:
        config.hook.pytest_deselected(items=left)
        others = set(left)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    try:
        wait_until(lambda: not marked_processes())
    except TimeoutError:
        left = marked_processes()
        lines = [described(process) for process in left]
        end(left)
        pytest.fail(f"processes were left behind: {lines}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with a test that ran out of time what its clusters did, before what pytest-timeout tells of this process."""
    report = yield
    if report.failed and call.excinfo is not None and "Timeout" in str(call.excinfo.value):
        report.sections.insert(0, ("clusters", described_clusters()))
    return report


@pytest.fixture(scope="module", autouse=True)
def _no_task_is_left() -> Iterator[None]:
    """Find the tests that leave a task on a worker of a session's cluster, whose only thread others then wait for."""
    yield
    try:
        wait_until(lambda: not busy_workers())
    except TimeoutError:
        stacks = "\n".join(busy_workers())
        pytest.fail(f"a test of this module left tasks on workers:\n{stacks}")


@pytest.fixture(scope="session")
def client2() -> Iterator[Client]:
    """Client of two worker processes of one thread each. Leave the workers as they were."""
    with local_cluster(2) as client:
        yield client


@pytest.fixture(scope="session")
def cluster2(client2: Client) -> str:
    """Address of the scheduler of `client2`."""
    return str(client2.scheduler.address)


@pytest.fixture(scope="session")
def client3() -> Iterator[Client]:
    """Client of three worker processes of one thread each. Leave the workers as they were."""
    with local_cluster(3) as client:
        yield client


@pytest.fixture(scope="session")
def _object_server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def objects(_object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A local S3 server, found by the environment, on which everything goes well until a test changes that.

    Its bucket is shared by the tests of a session: choose names of your own.
    """
    for name, value in _object_server.environment().items():
        monkeypatch.setenv(name, value)
    _object_server.faults.clear()
    yield _object_server
    _object_server.faults.clear()

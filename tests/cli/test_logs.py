"""``daskkern logs``: events and log entries of one fit, in the order of their times."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern.cli.logs import plain
from daskkern.cli.main import main
from daskkern.cluster.gang.worker_logs import LOG, WorkerLogs, logged_as
from daskkern.training.jobs.handle import attach, list_fits
from daskkern.training.jobs.logs import read_logs

pytestmark = pytest.mark.timeout(120)


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.long
@pytest.mark.cluster
def test_the_logs_of_a_fit_come_from_its_workers(
    cluster2: str, client2: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    where = ("--scheduler", cluster2)
    fit = ("fit", tmp_path / "d.zarr", "--kernel", "gaussian:4", "--landmarks", 50, "--detach", *where)
    assert run(capfd, *fit, "--epochs", 3, "--out", tmp_path / "m.zarr")[0] == 0
    assert run(capfd, *fit, "--memory", "1kB", "--out", tmp_path / "n.zarr")[0] == 0
    good, bad = (status.metadata.fit for status in list_fits(client2)[-2:])
    code, out, _ = run(capfd, "logs", good, "--follow", *where)
    assert (code, out.rstrip().endswith("  finished")) == (0, True)
    followed = {line for line in out.splitlines() if "submitted by" not in line}
    code, out, _ = run(capfd, "logs", good, *where)
    lines = out.splitlines()
    assert followed <= set(lines)
    assert lines[1:-1] == sorted(lines[1:-1], key=lambda line: line[:19])
    assert "  submitted by " in lines[0]
    assert lines[-1].endswith("  finished")
    for words in (
        "info    driver on ",
        "info    supervisor on ",
        "info    rank 0 on ",
        "info    rank 1 on ",
        "epoch   3/3",
    ):
        assert words in out
    assert "the rank has returned" in out
    run(capfd, "watch", bad, *where)
    code, out, _ = run(capfd, "logs", bad, *where)
    assert (code, "error   driver on " in out) == (0, True)
    assert "MemoryBudgetError" in out
    assert "rank 0" not in out
    handle = attach(client2, good)
    events, number = handle.events_since(0)
    assert [timed.time for timed in events] == [timed.time for timed in handle.timed_events()]
    assert len(events) > 5
    assert handle.events_since(number) == ((), number)
    page = read_logs(client2, good)
    assert read_logs(client2, good, page.read).lines == ()
    assert run(capfd, "logs", "nix", *where)[2].startswith("daskkern: error: no fit 'nix' is known at")


@pytest.fixture
def logs() -> Any:
    handler = WorkerLogs("tcp://here:1")
    handler.attach()
    yield handler
    handler.detach()


def test_entries_belong_to_the_fit_of_their_thread(logs: WorkerLogs) -> None:
    LOG.info("before any fit")
    with logged_as("f1", "rank 0", "tcp://here:1"):
        LOG.info("step %d", 1)
        thread = threading.Thread(target=LOG.warning, args=("of a thread that it has started",))
        thread.start()
        thread.join()
        with logged_as("f2", "supervisor", "tcp://here:1"):
            LOG.error("of another fit")
        with logged_as("f1", "rank 1", "tcp://there:1"):
            LOG.info("of another worker in this process")
        LOG.info("step %d", 2)
    found = [(entry.level, entry.role, entry.text) for entry in logs.of("f1")]
    assert found == [
        ("INFO", "rank 0", "step 1"),
        ("WARNING", "", "of a thread that it has started"),
        ("INFO", "rank 0", "step 2"),
    ]
    assert [entry.text for entry in logs.of("f2")] == ["of another fit"]
    first = logs.of("f1")[0]
    assert [entry.text for entry in logs.of("f1", first.number)][-1] == "step 2"


def test_entries_of_threads_without_a_fit_are_left_out_where_there_are_two(logs: WorkerLogs) -> None:
    both = threading.Barrier(2)

    def other() -> None:
        with logged_as("f2", "rank 0", "tcp://here:1"):
            both.wait()
            both.wait()

    thread = threading.Thread(target=other)
    thread.start()
    with logged_as("f1", "rank 0", "tcp://here:1"):
        both.wait()
        nobody = threading.Thread(target=LOG.warning, args=("of one or the other",))
        nobody.start()
        nobody.join()
        both.wait()
    thread.join()
    assert (logs.of("f1"), logs.of("f2")) == ([], [])


def test_entries_are_bounded_and_have_no_secrets(logs: WorkerLogs) -> None:
    with logged_as("f1", "driver", "tcp://here:1"):
        LOG.info("rows from %s", "s3://user:secret@host/rows?token=secret")
        LOG.info("x" * 100_000)
        for number in range(5_000):
            LOG.info("entry %d", number)
        LOG.debug("not kept")
    entries = logs.of("f1")
    assert len(entries) == 2_000
    assert entries[-1].text == "entry 4999"
    with logged_as("f3", "driver", "tcp://here:1"):
        LOG.info("rows from %s", "s3://user:secret@host/rows?token=secret")
        LOG.info("x" * 100_000)
    rows, long = logs.of("f3")
    assert rows.text == "rows from s3://host/rows"
    assert len(long.text) == 4_000


def test_levels_are_as_before_afterwards() -> None:
    logger = logging.getLogger("daskkern")
    before = logger.level, list(logger.handlers)
    handler = WorkerLogs("tcp://here:1")
    handler.attach()
    assert logger.isEnabledFor(logging.INFO)
    handler.detach()
    assert (logger.level, list(logger.handlers)) == before


def test_what_controls_a_terminal_is_escaped() -> None:
    assert plain("a\x1b[31mred\x07 \u202eback\r ä") == "a\\x1b[31mred\\x07 \\u202eback\\r ä"

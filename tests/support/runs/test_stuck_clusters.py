"""A cluster that does not answer is described with the test that waits for it."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_runtest_makereport
from tests.support.cluster import local_cluster, wait_until
from tests.support.runs.stuck_clusters import busy_workers, described


@pytest.mark.cluster
def test_a_task_that_hangs_is_found_with_its_stack(tmp_path: Path) -> None:
    end = tmp_path / "end"

    def wait_for_a_file() -> None:
        while not end.exists():
            time.sleep(0.01)

    with local_cluster(1) as client:
        assert busy_workers() == []
        address = client.scheduler.address
        future = client.submit(wait_for_a_file, key="hanging")
        try:
            wait_until(lambda: any("in wait_for_a_file" in line for line in busy_workers()))
            text = described()
        finally:
            end.touch()
        future.result(timeout=60)
        wait_until(lambda: busy_workers() == [])
    assert "hanging: processing, on tcp://127.0.0.1:" in text
    assert "Status.running, 1 tasks, 0 messages wait" in text
    assert "in wait_for_a_file" in text
    assert address in text
    assert address not in described()  # clusters of other tests may be there


@pytest.mark.parametrize(
    ("message", "titles"),
    [
        ("Timeout (>300.0s) from pytest-timeout.", ["clusters", "Captured stdout call"]),
        ("assert 1 == 2", ["Captured stdout call"]),
    ],
)
def test_a_test_without_time_says_first_what_its_clusters_did(message: str, titles: list[str]) -> None:
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=message))
    made: Any = SimpleNamespace(failed=True, sections=[("Captured stdout call", "stacks of this process")])
    item: Any = None
    hook = pytest_runtest_makereport(item, call)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(made)
    assert [title for title, _ in ended.value.value.sections] == titles

"""A cluster that does not answer is described with the test that waits for it."""

import time
from pathlib import Path

import pytest

from tests.support.cluster import local_cluster, wait_until
from tests.support.runs.stuck_clusters import busy_workers, described

pytest_plugins = ["pytester"]


@pytest.mark.cluster
def test_a_task_that_hangs_is_found_with_its_stack(tmp_path: Path) -> None:
    end = tmp_path / "end"

    def wait_for_a_file() -> None:
        while not end.exists():
            time.sleep(0.01)

    with local_cluster(1) as client:
        assert busy_workers() == []
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
    assert described() == ""


def test_a_test_without_time_says_what_its_clusters_did(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport  # noqa: F401")
    pytester.makepyfile("""
        import time
        import pytest

        @pytest.mark.timeout(0.2)
        def test_too_long():
            time.sleep(60)
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*- clusters -*"])

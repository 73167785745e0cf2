"""Tasks on a folder: an error comes when no task writes any more."""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client
from zarr.errors import GroupNotFoundError
from zarr.storage import MemoryStore

from daskkern.data.shuffle.cancellable_tasks import check_wanted, run_tasks
from daskkern.errors import StoreError

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class _Job:
    folder: Path
    number: int


def _square(job: _Job) -> int:
    check_wanted(job.folder)
    return job.number**2


def _write_or_fail(job: _Job) -> None:
    if job.number == 0:
        raise ValueError("number 0 fails")
    for step in range(600):
        check_wanted(job.folder)
        (job.folder / f"{job.number}-{step}").touch()
        time.sleep(0.05)


def test_results_come_in_the_order_of_the_jobs(client2: Client, tmp_path: Path) -> None:
    seen: list[int] = []
    assert run_tasks(client2, _square, [_Job(tmp_path, k) for k in range(7)], tmp_path, seen.append) == [
        k**2 for k in range(7)
    ]
    assert sorted(seen) == list(range(7))


def test_after_an_error_nothing_is_written_any_more(client2: Client, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number 0 fails"):
        run_tasks(client2, _write_or_fail, [_Job(tmp_path, k) for k in (1, 0, 2, 3)], tmp_path)
    before = sorted(tmp_path.iterdir())
    assert len(before) < 600
    time.sleep(0.5)
    assert sorted(tmp_path.iterdir()) == before


def _fail_with_a_cause(name: str) -> None:
    try:
        if name == "group":
            raise GroupNotFoundError(MemoryStore(), "")
        raise ExceptionGroup("several", [ValueError("one"), _UnpicklableError()])
    except Exception as error:
        raise StoreError(f"{name} failed") from error


class _UnpicklableError(Exception):
    def __reduce__(self) -> str:
        raise TypeError("never")


@pytest.mark.parametrize("name", ["group", "several"])
def test_an_error_arrives_whatever_it_comes_from(client2: Client, name: str) -> None:
    with pytest.raises(StoreError, match=f"^{name} failed$"):
        run_tasks(client2, _fail_with_a_cause, [name])


def test_a_task_of_a_removed_folder_ends(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError, match="was cancelled"):
        check_wanted(tmp_path / "gone")

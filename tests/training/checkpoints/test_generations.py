"""Commits of a later generation are never replaced, removed or shadowed by those of an earlier one."""

import errno
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr.storage

from daskkern.errors import StoreError, SupersededError
from daskkern.events import CheckpointFailed, CheckpointWritten
from daskkern.monitor.event_text import line_of
from daskkern.solvers import Shard, Snapshot
from daskkern.training.checkpoints.checkpoint import (
    begin_checkpoint,
    is_checkpoint,
    open_checkpoint,
    read_checkpoint,
    remove_checkpoint,
    remove_checkpoint_of,
)
from daskkern.training.checkpoints.checkpoint_writer import CheckpointWriter
from daskkern.training.checkpoints.claims import Claim, CommitGeneration, CommitName, claims_of, commits_of
from daskkern.training.checkpoints.commits import Commit, Position
from daskkern.training.checkpoints.model_guard import ModelGuard
from tests.support.cluster import wait_until
from tests.support.object_server import object_server


def commit_of(steps: int, size: int = 6) -> Commit:
    coef = np.full((size, 1), float(steps))
    return Commit(Snapshot({"coef": Shard(np.arange(size), coef)}, {}, {}), Position(steps=steps))


def write(claim: Claim, gang: int, *steps: int, size: int = 6) -> list[CheckpointWritten | CheckpointFailed]:
    with CheckpointWriter(claim, gang, "run", "{}", 0.0) as writer:
        for number in steps:
            writer.offer(commit_of(number, size), at_once=True)
    return list(writer.events())


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "c")
    elif request.param == "memory":
        pytest.importorskip("fsspec")
        yield f"memory://{tmp_path.name}/c"
    else:
        pytest.importorskip("moto")
        pytest.importorskip("obstore")
        with object_server() as server:
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            yield server.url("c")


@pytest.mark.parametrize("old", [False, True])
def test_arrays_of_zeros_come_back(tmp_path: Path, old: bool) -> None:
    commit = Commit(Snapshot({"coef": Shard(np.arange(9), np.zeros((9, 2)))}, {"before": np.zeros(3)}, {}), Position(1))
    with CheckpointWriter(begin_checkpoint(str(tmp_path / "c"), "run"), 0, "run", "{}", 0.0) as writer:
        writer.offer(commit, at_once=True)
    if old:  # chunks of zeros were not written by earlier versions
        (chunk,) = (tmp_path / "c").glob("commit-*/whole/before/c/0")
        chunk.unlink()
    found = read_checkpoint(str(tmp_path / "c"), "{}")
    assert found is not None
    np.testing.assert_array_equal(found.commit.snapshot.whole["before"], np.zeros(3))
    np.testing.assert_array_equal(found.commit.snapshot.shards["coef"].values, np.zeros((9, 2)))


def test_a_missing_chunk_of_other_values_is_refused(tmp_path: Path) -> None:
    write(begin_checkpoint(str(tmp_path / "c"), "run"), 0, 3)
    next((tmp_path / "c").glob("commit-*/shard/coef/c/0/0")).unlink()
    with pytest.raises(StoreError, match=r"damaged|incomplete"):
        read_checkpoint(str(tmp_path / "c"), "{}")


def steps_at(place: str) -> int:
    found = read_checkpoint(place, "{}")
    assert found is not None
    return found.commit.position.steps


@pytest.mark.long
@pytest.mark.one_in(3)
def test_an_earlier_driver_that_wakes_changes_nothing(place: str) -> None:
    first = begin_checkpoint(place, "run")
    old = CheckpointWriter(first, 7, "run", "{}", 0.0)
    old.offer(commit_of(5), at_once=True)
    wait_until(lambda: read_checkpoint(place, "{}") is not None)
    later = begin_checkpoint(place, "run")
    assert later.number == first.number + 1
    assert [type(event) for event in write(later, 0, 100)] == [CheckpointWritten]
    with old:
        old.offer(commit_of(500), at_once=True)
    assert "a later run of this fit has taken over" in old.problem
    assert isinstance(old.events()[-1], CheckpointFailed)
    found = read_checkpoint(place, "{}")
    assert (found.commit.position.steps, found.generation) == (100, CommitGeneration(later.number, 0))


@pytest.mark.one_in(3)
def test_an_earlier_gang_of_the_same_driver_is_refused(place: str) -> None:
    claim = begin_checkpoint(place, "run")
    write(claim, 31, 100)
    refused = write(claim, 30, 10, 200)
    assert [type(event) for event in refused] == [CheckpointFailed]  # told once
    assert steps_at(place) == 100
    assert [type(event) for event in write(claim, 32, 50)] == [CheckpointWritten]  # later, although behind
    assert steps_at(place) == 50


def test_what_an_earlier_gang_completes_late_does_not_count(tmp_path: Path) -> None:
    """Both pass the check, and the earlier one completes its commit last."""
    place = str(tmp_path / "c")
    claim = begin_checkpoint(place, "run")
    write(claim, 3, 10)
    late = next((tmp_path / "c").glob("commit-*"))
    late.rename(tmp_path / "aside")
    write(claim, 4, 8)
    (tmp_path / "aside").rename(late)
    assert steps_at(place) == 8
    write(claim, 4, 9)
    assert len(list((tmp_path / "c").glob("commit-*"))) == 1


def test_a_fit_that_was_started_over_owes_nothing_to_the_one_before(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    before = begin_checkpoint(place, "one")
    write(before, 9, 900)
    (tmp_path / "c").rename(tmp_path / "before")
    after = begin_checkpoint(place, "two")
    assert after.number == before.number
    assert [type(event) for event in write(before, 10, 901)] == [CheckpointFailed]
    left = next((tmp_path / "before").glob("commit-*"))
    left.rename(tmp_path / "c" / left.name)  # its commit was on the way
    assert read_checkpoint(place, "{}") is None
    assert not is_checkpoint(place)
    write(after, 0, 3)
    assert steps_at(place) == 3


def test_a_claim_counts_once_its_metadata_is_there(tmp_path: Path) -> None:
    """The process of the later driver may be stopped, or killed, when it has only created the folder of its claim."""
    place, folder = str(tmp_path / "c"), tmp_path / "c" / "driver-000002"
    claim = begin_checkpoint(place, "run")
    folder.mkdir()
    (folder / "zarr.0123.partial").touch()
    assert claim.check()
    write(claim, 3, 10)
    assert steps_at(place) == 10
    later = begin_checkpoint(place, "run")
    assert later.number == 3
    with pytest.raises(SupersededError, match="later run"):
        claim.check()


@pytest.mark.long
@pytest.mark.one_in(3)
def test_drivers_that_claim_at_once_get_numbers_of_their_own(place: str) -> None:
    begin_checkpoint(place, "run")
    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(lambda _: begin_checkpoint(place, "run"), range(4)))
    group = open_checkpoint(place)
    known = claims_of(group)
    if not place.startswith("memory"):  # where there are no conditional writes, the last one to write wins
        assert len({claim.number for claim in claims}) == 4
        assert all(known[claim.number] == claim.name for claim in claims)
    valid = [claim for claim in claims if known.get(claim.number) == claim.name]
    last = max(valid, key=lambda claim: claim.number)
    assert last.check()
    for claim in claims:
        if claim != last:
            with pytest.raises(SupersededError, match="later run"):
                claim.check()


def test_a_checkpoint_of_before_generations_is_opened_and_gone_on_from(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    write(begin_checkpoint(place, "run"), 2, 40)
    folder = next((tmp_path / "c").glob("commit-*"))
    for claim in (tmp_path / "c").glob("driver-*"):
        (claim / "zarr.json").unlink()
        claim.rmdir()
    folder.rename(tmp_path / "c" / "commit-000000017")
    group = zarr.open_group(place, mode="r+")
    group.update_attributes({"version": 2})
    assert steps_at(place) == 40
    assert read_checkpoint(place, "{}").generation == CommitGeneration()
    write(begin_checkpoint(place, "run"), 0, 30)
    assert steps_at(place) == 30
    assert [commit.name.generation.driver for commit in commits_of(open_checkpoint(place))] == [1]


def test_names_of_commits_are_ordered_as_their_generations() -> None:
    order = [
        CommitName.parse("commit-000000017"),
        *(
            CommitName(CommitGeneration(d, g), s, n)
            for d, g, s, n in itertools.product((1, 12), (0, 10**9), (3, 10**12), (1, 2))
        ),
    ]
    assert order == sorted(order)
    assert [CommitName.parse(str(name)) for name in order[1:]] == order[1:]
    assert CommitName.parse("driver-000001") is None


def test_a_model_of_a_later_run_is_not_replaced(tmp_path: Path) -> None:
    place, out = str(tmp_path / "c"), str(tmp_path / "m")
    guard, claim = ModelGuard.of(out), begin_checkpoint(place, "run")
    guard.check(claim)
    zarr.create_group(out, attributes={"by": "a run that has ended"})
    guard.check(claim)  # no later run has this checkpoint: the model is the older one, as --overwrite allows
    later = begin_checkpoint(place, "run")
    with pytest.raises(SupersededError, match="later run"):
        guard.check(claim)
    ModelGuard.of(out).check(later)
    remove_checkpoint(place)  # as the later run does at its end
    with pytest.raises(SupersededError, match="another run has written"):
        guard.check(claim)
    ModelGuard.of(out).check(claim)


class _Full:
    """A disk with room for a number of bytes in chunks; writes of more fail, and removing makes room."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int) -> None:
        self.room, original = room, zarr.storage.LocalStore.set

        async def put(store: Any, key: str, value: Any) -> None:
            if len(value) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            await original(store, key, value)

        patch.setattr(zarr.storage.LocalStore, "set", put)


def test_a_full_disk_keeps_the_older_commit_and_nothing_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")  # local clusters of other tests have raised the level of its handler
    place = str(tmp_path / "c")
    claim = begin_checkpoint(place, "run")
    write(claim, 0, 10, size=600)
    with monkeypatch.context() as patch:
        _Full(patch, 4000)
        events = write(claim, 1, 20, 30, 40, size=600)
    reason = (
        f"the checkpoint {place} is not written: No space left on device, for 9.6 kB; an earlier commit in it is kept; "
    )
    assert events == [CheckpointFailed(f"{reason}the fit goes on without it")]
    assert len(list((tmp_path / "c").glob("commit-*"))) == 1
    assert steps_at(place) == 10
    assert [type(event) for event in write(claim, 1, 50, size=600)] == [CheckpointWritten]
    assert steps_at(place) == 50
    assert "No space left on device" in caplog.text


def test_what_killed_writers_left_is_removed_before_more_is_written(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    claim = begin_checkpoint(place, "run")
    write(claim, 0, 10)
    for name in ("commit-000001-000000000-000000000011-000009", "commit-000000002"):
        (tmp_path / "c" / name / "x").mkdir(parents=True)
        (tmp_path / "c" / name / "x" / "chunk").write_bytes(bytes(1000))
    assert steps_at(place) == 10
    write(claim, 1, 12)
    assert len(list((tmp_path / "c").glob("commit-*"))) == 1
    assert steps_at(place) == 12


def test_a_failed_checkpoint_is_one_line() -> None:
    assert line_of(CheckpointFailed("the disk is full"), 3) == "the disk is full"


@pytest.mark.one_in(3)
def test_a_claim_that_is_withdrawn_gives_the_checkpoint_back(place: str) -> None:
    first = begin_checkpoint(place, "run")
    late = begin_checkpoint(place, "run")
    with pytest.raises(SupersededError):
        first.check()
    late.withdraw()
    assert first.check()
    late.withdraw()
    assert [type(event) for event in write(first, 0, 7)] == [CheckpointWritten]
    again = begin_checkpoint(place, "run")
    late.withdraw()  # the number is that of another now
    assert again.check()


@pytest.mark.one_in(3)
def test_a_checkpoint_is_removed_only_by_the_run_that_holds_it(place: str) -> None:
    first = begin_checkpoint(place, "run")
    later = begin_checkpoint(place, "run")
    remove_checkpoint_of(place, "run", first)
    remove_checkpoint_of(place, "another", None)
    assert open_checkpoint(place) is not None
    remove_checkpoint_of(place, "run", later)
    assert open_checkpoint(place) is None
    remove_checkpoint_of(place, "run", later)

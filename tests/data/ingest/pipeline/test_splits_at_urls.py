"""Splits go straight to URLs: the rows of the local way, without a local copy, by any number of workers."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import daskkern
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.data.transactions.output_files import output_folder
from daskkern.errors import CONTINUES, DataError, StoreError
from tests.support.cluster import local_cluster
from tests.support.files.same_stores import assert_same_stores
from tests.support.object_server import ObjectServer, reaching
from tests.support.processes import ended

ROWS = 3000
PARTS = {"train": "out", "test": "out_test", "validation": "out_validation"}
SETTINGS: dict[str, Any] = {"target": "y", "task": "classification", "chunk_rows": 150, "split": 0.2, "seed": 3}
THREE = {**SETTINGS, "split_validation": 0.07}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.data.ingest.pipeline.parallel.LEAST_BYTES", 12_000)
    monkeypatch.setattr("daskkern.data.shuffle.piece_plan.LEAST_BYTES", 12_000)
    monkeypatch.setattr("daskkern.data.transactions.part_record.SECONDS", 0.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    number = np.arange(ROWS)
    kinds = np.where(number % 7 == 0, None, (number % 5).astype(str))
    gaps = np.where(number % 11 == 0, np.nan, number * 0.5)
    columns = {
        "x": number * 1.0,
        "gaps": gaps,
        "kind": kinds,
        "y": number % 4,
        "day": number // 1000,
        "w": number + 1.0,
    }
    pq.write_table(pa.table(columns), tmp_path / "d.parquet", row_group_size=500)
    return tmp_path / "d.parquet"


@pytest.fixture(scope="module")
def client1() -> Iterator[Client]:
    with local_cluster(1) as client:
        yield client


@pytest.fixture(params=[0, 1, 2])
def client(request: pytest.FixtureRequest, objects: ObjectServer) -> Iterator[Client | None]:
    """No client, or one of so many workers that reach the object server."""
    if request.param == 0:
        yield None
        return
    with reaching(request.getfixturevalue(f"client{request.param}"), objects) as client:
        yield client


def places(folder: str, settings: dict[str, Any]) -> dict[str, str]:
    return {
        option: f"{folder}/{name}"
        for name, option in PARTS.items()
        if name != "validation" or "split_validation" in settings
    }


def ingested(source: Path, folder: str, settings: dict[str, Any], **more: Any) -> Any:
    return ingest(source, **places(folder, settings), **settings, **more)


@pytest.mark.one_in(4)
@pytest.mark.cluster
@pytest.mark.parametrize(
    "settings",
    [
        {**SETTINGS, "shuffle": False, "weight": "w", "scale": "standard"},
        {**THREE, "shuffle": True},
        {**THREE, "target": "day"},
        {**THREE, "target": "x", "task": "regression", "shuffle": False},
        {**SETTINGS, "stratify": False},
    ],
    ids=["in order", "shuffled", "sorted", "quantities", "no strata"],
)
def test_the_stores_are_those_of_the_local_way(
    settings: dict[str, Any],
    client: Client | None,
    source: Path,
    objects: ObjectServer,
    tmp_path: Path,
    temporary_bytes: Callable[[], int],
    request: pytest.FixtureRequest,
) -> None:
    url, held = objects.url(f"splits/{request.node.callspec.id.replace(' ', '-')}"), [0]
    mine = ingested(source, url, settings, client=client, progress=lambda *_: held.append(temporary_bytes()))
    theirs = ingested(source, str(tmp_path / "local"), settings)
    for name in ("n_rows", "n_test_rows", "n_validation_rows", "classes", "shuffled"):
        assert getattr(mine, name) == getattr(theirs, name)
    for option, place in places(url, settings).items():
        assert_same_stores(place, places(str(tmp_path / "local"), settings)[option])
    assert max(held) == 0
    left = {name.partition("/")[0] for name in output_folder(url).names()}
    assert left == {place.rpartition("/")[2] for place in places(url, settings).values()}


def stop_at(ends: Callable[[int, int | None], bool], error: BaseException) -> Callable[[int, int | None], None]:
    def progress(done: int, total: int | None) -> None:
        if ends(done, total):
            raise error

    return progress


@pytest.mark.long
@pytest.mark.parametrize("stage", ["split", "shuffle"])
def test_an_interrupted_run_continues_and_an_error_leaves_nothing(
    stage: str, source: Path, objects: ObjectServer, tmp_path: Path
) -> None:
    settings, passes = {**THREE, "shuffle": True}, [0]

    def ends(done: int, total: int | None) -> bool:
        """Return whether it is the end of a stage; rows are counted anew in each."""
        if stage == "shuffle":
            return total not in (None, ROWS) and done > 0
        passes[0] += done == 0
        return passes[0] == 2 and done > 0

    ingested(source, str(tmp_path / "local"), settings)
    for error in (OSError("no more"), KeyboardInterrupt()):
        passes[0], url = 0, objects.url(f"split-{stage}-{type(error).__name__}")
        with pytest.raises(type(error)) as raised:
            ingested(source, url, settings, progress=stop_at(ends, error))
        for place in places(url, settings).values():
            with pytest.raises(StoreError):
                open_store(place)
        if isinstance(error, OSError):
            assert output_folder(url).names() == []
    assert raised.value.__notes__ == [CONTINUES]
    first = list[tuple[int, int | None]]()
    ingested(source, url, settings, progress=lambda *seen: first.append(seen))
    assert first[0][0] > 0  # of the split: the rows are not ingested again
    for option, place in places(url, settings).items():
        assert_same_stores(place, places(str(tmp_path / "local"), settings)[option])
    assert {name.partition("/")[0] for name in output_folder(url).names()} == set(PARTS)


CHILD = """
import json, sys
from daskkern.data.ingest import ingest
ingest(**json.loads(sys.argv[1]))
"""


@pytest.mark.repeated
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_process_that_ends_anywhere_is_continued(
    share: float, source: Path, objects: ObjectServer, tmp_path: Path
) -> None:
    """Access is denied from one request on: nothing more happens, as after a kill."""
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}

    def run(folder: str) -> int:
        given = {"sources": str(source), **SETTINGS, **places(folder, SETTINGS)}
        return ended([sys.executable, "-c", CHILD, json.dumps(given)], 120, env=environment).returncode

    whole, url = objects.url(f"ended/{share}-whole"), objects.url(f"ended/{share}")
    assert run(whole) == 0
    total = objects.faults.counts["requests"]
    objects.faults.clear()
    objects.faults.deny_after = int(share * total)
    assert run(url) != 0
    objects.faults.clear()
    assert run(url) == 0
    for option, place in places(url, SETTINGS).items():
        assert_same_stores(place, places(whole, SETTINGS)[option])


def test_a_split_that_leaves_no_rows_of_a_class_leaves_nothing(tmp_path: Path, objects: ObjectServer) -> None:
    np.savez(tmp_path / "d.npz", X=np.ones((40, 1)), y=np.r_[np.zeros(20, int), np.ones(19, int), 2])
    url = objects.url("splits/rare")
    stores = {"out": f"{url}/s", "out_test": f"{url}/t"}
    with pytest.raises(DataError, match="the label 2 is so rare that all its rows went to the test"):
        ingest(tmp_path / "d.npz", **stores, split=0.9, stratify=False)
    assert output_folder(url).names() == []


def test_another_store_is_not_taken_for_a_part(tmp_path: Path, source: Path, objects: ObjectServer) -> None:
    url = objects.url("splits/foreign")
    ingest(source, f"{url}/test", target="y")
    with pytest.raises(StoreError, match="test exists"):
        ingested(source, url, SETTINGS)
    assert open_store(f"{url}/test").info.n_rows == ROWS
    assert all(name.startswith("test/") for name in output_folder(url).names())

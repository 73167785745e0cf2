"""Ingestions to URLs from sources of every kind need no local copy: one process writes what comes row after row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

from daskkern.data.ingest import DaskArrays, ingest
from daskkern.data.storage.store import open_store
from daskkern.data.transactions.output_files import output_folder
from daskkern.errors import StoreError
from tests.support.files.same_stores import assert_same_stores
from tests.support.object_server import ObjectServer

ROWS = 1500


def number() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, (ROWS, 12)).astype(np.float32)


def labels() -> np.ndarray:
    return np.arange(ROWS) % 3 + 1


def csv(folder: Path, times: int = 1) -> Path:
    lines = [",".join(map(str, [*row, label])) for row, label in zip(number(), labels(), strict=True)] * times
    path = folder / "d.csv"
    path.write_text("\n".join([",".join([*(f"x{i}" for i in range(12)), "y"]), *lines]) + "\n", encoding="utf-8")
    return path


def long_csv(folder: Path) -> Path:
    return csv(folder, 80)  # of several blocks


def svm(folder: Path) -> Path:
    X = number() * (number() > 60)
    dump_svmlight_file(scipy.sparse.csr_array(X), labels(), str(folder / "d.svm"), zero_based=False)
    return folder / "d.svm"


def with_test_rows(folder: Path) -> Path:
    X, y = number(), labels()
    np.savez(folder / "d.npz", X=X, y=y, X_test=X[:400], y_test=y[:400])
    return folder / "d.npz"


def arrays(folder: Path) -> DaskArrays:
    del folder
    return DaskArrays(da.from_array(number(), chunks=(500, 12)), da.from_array(labels(), chunks=500))


SOURCES: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "a CSV file": (csv, {"target": "y"}),
    "a CSV file, split and shuffled": (csv, {"target": "y", "split": 0.3, "shuffle": True}),
    "sparse rows": (svm, {}),
    "sparse rows, shuffled": (svm, {"shuffle": True}),
    "sparse rows, split and shuffled": (svm, {"split": 0.3, "shuffle": True}),
    "sparse rows, split": (svm, {"split": 0.3}),
    "test rows": (with_test_rows, {}),
    "test rows, shuffled": (with_test_rows, {"shuffle": True}),
    "test rows, and a split": (with_test_rows, {"split_validation": 0.2}),
    "dask arrays, split": (arrays, {"split": 0.3}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SOURCES)
def test_no_source_needs_a_local_copy(
    name: str, objects: ObjectServer, tmp_path: Path, temporary_bytes: Callable[[], int]
) -> None:
    make, settings = SOURCES[name]
    source, held, url = make(tmp_path), [0], objects.url(f"sources/{name.replace(' ', '-').replace(',', '')}")
    settings = {"task": "classification", "chunk_rows": 200, "scale": "maxabs", **settings}

    def run(folder: str, **more: Any) -> dict[str, str]:
        outs = {"out": f"{folder}/s"}
        if "split" in settings or make is with_test_rows:
            outs["out_test"] = f"{folder}/t"
        if "split_validation" in settings:
            outs["out_validation"] = f"{folder}/v"
        ingest(source, **outs, **settings, **more)
        return outs

    mine = run(url, progress=lambda *_: held.append(temporary_bytes()))
    theirs = run(str(tmp_path / "local"))
    for option, place in mine.items():
        assert_same_stores(place, theirs[option])
    assert max(held) == 0
    assert {found.partition("/")[0] for found in output_folder(url).names()} == {place[-1] for place in mine.values()}


@pytest.mark.parametrize("make", [long_csv, svm])
def test_an_interrupted_pass_is_continued(
    make: Callable[[Path], Any], objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskkern.data.ingest.pipeline.resume.SECONDS", 0.0)
    monkeypatch.setattr("daskkern.data.ingest.readers.svm_tables.BLOCK_BYTES", 8000)
    source, url, seen = make(tmp_path), objects.url(f"passes/{make.__name__}"), list[int]()
    chunk = 8000 if make is long_csv else 200
    settings = {"target": "y" if make is long_csv else None, "task": "classification", "chunk_rows": chunk}

    def stop(done: int, total: int | None) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(source, url, progress=stop, **settings)
    with pytest.raises(StoreError):
        open_store(url)
    again = list[int]()
    ingest(source, url, progress=lambda done, _: again.append(done), **settings)
    assert again[0] == seen[1]
    ingest(source, tmp_path / "local", **settings)
    assert_same_stores(url, str(tmp_path / "local"))

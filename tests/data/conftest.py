"""Small stores and files that the tests of the data layer share."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.writer import StoreWriter


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(name="X")
def feature_rows(rng: np.random.Generator) -> HostArray:
    return rng.normal(3.0, 2.0, size=(103, 5)).astype(np.float32)


@pytest.fixture
def codes() -> HostArray:
    return np.arange(103) % 3


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Store]:
    """Write rows in uneven blocks and open the store."""

    def make(X: HostArray, y: HostArray | None = None, weight: HostArray | None = None, **settings: object) -> Store:
        path = tmp_path / "made.zarr"
        settings = {"chunk_rows": 10, "has_weight": weight is not None, **settings}
        with StoreWriter(path, n_features=X.shape[1], dtype=X.dtype, **settings) as writer:  # type: ignore[arg-type]
            for start, stop in [(0, 7), (7, 8), (8, 55), (55, len(X))]:
                part = slice(start, stop)
                writer.append(X[part], None if y is None else y[part], None if weight is None else weight[part])
        return open_store(path)

    return make


@pytest.fixture
def left(tmp_path: Path) -> Callable[[], list[str]]:
    """Names of everything in the test's folder, hidden files included."""
    return lambda: sorted(os.listdir(tmp_path))


@pytest.fixture
def temporary_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts the bytes of all temporary files of this process."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return lambda: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

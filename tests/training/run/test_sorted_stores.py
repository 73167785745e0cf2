"""Rows sorted by label train like rows in a random order, and damaged stores end a fit with one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from daskkern.basis import AllRows
from daskkern.data.ingest import ingest
from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import open_store
from daskkern.errors import StoreError
from daskkern.evaluation.score import score_store
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import parse_solver
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

N = 1000


def _error(store: Path, test: Path, seed: int) -> float:
    settings = FitSettings(Gaussian(4.0), SquaredHinge(), AllRows(), parse_solver("auto"), max_epochs=15, seed=seed)
    error = score_store(fit(StoreSource.at(store), settings).model, open_store(test)).error
    assert error is not None
    return error


@pytest.mark.repeated
def test_a_sorted_source_trains_to_the_error_of_a_random_one(tmp_path: Path) -> None:
    X, y = make_blobs(5 * N, n_features=6, centers=8, cluster_std=3.2, random_state=0)
    order = np.argsort(y[:N], kind="stable")
    np.savez(tmp_path / "random.npz", X=X[:N], y=y[:N])
    np.savez(tmp_path / "sorted.npz", X=X[:N][order], y=y[:N][order])
    np.savez(tmp_path / "test.npz", X=X[N:], y=y[N:])
    for name in ("random", "sorted", "test"):
        report = ingest(tmp_path / f"{name}.npz", tmp_path / name, chunk_rows=100)
        assert report.shuffled == (name == "sorted")
    found = {name: np.mean([_error(tmp_path / name, tmp_path / "test", seed) for seed in range(2)])
             for name in ("random", "sorted")}  # fmt: skip
    assert 0.01 < found["random"] < 0.4  # a task on which there is something to lose
    assert abs(found["sorted"] - found["random"]) < 0.003


@pytest.mark.one_in(3)
@pytest.mark.parametrize("damage", ["remove", "truncate", "dtype", "attribute", "codes"])
def test_a_fit_on_a_damaged_store_is_one_sentence(tmp_path: Path, damage: str) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(300, 3)), y=np.arange(300) % 2)
    store = tmp_path / "s"
    ingest(tmp_path / "d.npz", store, chunk_rows=50)
    chunk = store / "X" / "c" / "3" / "0"
    if damage == "remove":
        chunk.unlink()
    elif damage == "truncate":
        chunk.write_bytes(chunk.read_bytes()[:100])
    elif damage == "codes":
        (store / "y" / "c" / "3").write_bytes(np.full(50, 9).tobytes())
    else:
        file = store / "zarr.json" if damage == "attribute" else store / "X" / "zarr.json"
        content = json.loads(file.read_text())
        if damage == "attribute":
            content["attributes"]["n_rows"] = 299
        else:
            content["data_type"] = "string"
        file.write_text(json.dumps(content))
    with pytest.raises(StoreError) as error:
        _error(store, store, 0)
    assert str(store) in str(error.value)
    assert "\n" not in str(error.value)
    try:
        findings = [finding.sentence for finding in check_store(store).findings]
    except StoreError as opening:
        findings = [str(opening)]
    assert findings

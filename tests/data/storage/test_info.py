"""A description says what a store holds."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.info import QUANTILES, describe_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import StoreError


def test_classes_weights_columns_and_bytes(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.integers(0, 255, (103, 3)).astype(np.uint8)
    X[:, 2] = 7
    weight = np.arange(103) / 4
    with StoreWriter(
        tmp_path / "s", n_features=3, dtype=np.uint8, task="classification", classes=("no", "yes"), has_weight=True,
        chunk_rows=10, scale="minmax", feature_names=("a", "b", "c"),
    ) as writer:  # fmt: skip
        writer.set_provenance({"by": "a test", "from": ["nothing"]})
        writer.append(X, np.arange(103) % 2, weight)
    found = describe_store(tmp_path / "s")
    assert (found.n_rows, found.n_features, found.dtype, found.task) == (103, 3, "uint8", "classification")
    assert (found.classes, found.class_counts) == (("no", "yes"), (52, 51))
    assert [array.name for array in found.arrays] == ["X", "y", "weight"]
    assert found.n_bytes == 103 * (3 + 8 + 8)
    assert found.arrays[0].n_chunks == 11
    assert found.arrays[0].compressors == ()
    assert found.stored_bytes >= 110 * 19
    assert found.weight is not None
    assert (found.weight.min, found.weight.max, found.weight.n_zero) == (0.0, 25.5, 1)
    assert found.weight.mean == pytest.approx(weight.mean())
    assert found.columns[1].name == "b"
    assert found.columns[1].mean == pytest.approx(X[:, 1].mean())
    assert found.n_constant == 1
    assert found.scaling == "minmax"
    assert not found.is_sorted
    assert found.density is None
    assert found.provenance == {"by": "a test", "from": ["nothing"]}
    assert json.loads(json.dumps(dataclasses.asdict(found)))["n_rows"] == 103


def test_regression_targets_have_quantiles_and_a_histogram(tmp_path: Path, rng: np.random.Generator) -> None:
    y = rng.normal(size=(1000, 2)).cumsum(axis=0)
    with StoreWriter(
        tmp_path / "s", n_features=1, task="regression", n_targets=2, chunk_rows=50, target_names=("u", "v")
    ) as writer:
        writer.append(np.zeros((1000, 1), np.float32), y)
    found = describe_store(tmp_path / "s")
    for j, target in enumerate(found.targets):
        assert target.name == "uv"[j]
        assert target.mean == pytest.approx(y[:, j].mean())
        np.testing.assert_allclose(target.quantiles, np.quantile(y[:, j], QUANTILES))
        assert sum(target.counts) == target.n_sampled == 1000
        assert len(target.edges) == len(target.counts) + 1
    assert found.is_sorted  # a random walk
    assert found.sorted_share > 0.5


def test_large_targets_are_sampled(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", n_features=1, task="regression", chunk_rows=10) as writer:
        writer.append(np.zeros((1005, 1), np.float32), np.arange(1005.0))
    (target,) = describe_store(tmp_path / "s", max_values=100).targets
    assert target.n_sampled == 95  # ten of 101 chunks, the last of which has five rows
    assert (target.quantiles[0], target.quantiles[-1]) == (0.0, 1004.0)
    assert target.mean == 502.0  # of all rows


def test_sparse_rows_have_a_density(tmp_path: Path, rng: np.random.Generator) -> None:
    X = scipy.sparse.random_array((200, 30), density=0.1, format="csr", dtype=np.float32, rng=rng)
    with StoreWriter(tmp_path / "s", n_features=30, sparse=True) as writer:
        writer.append(X)
    found = describe_store(tmp_path / "s")
    assert found.density == pytest.approx(0.1)
    assert [array.name for array in found.arrays] == ["X/data", "X/indices", "X/indptr"]
    assert found.task is None


def test_a_shuffle_is_recorded(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", n_features=1) as writer:
        writer.set_provenance({"by": "a test"})
        writer.append(np.zeros((20, 1), np.float32))
    shuffle_store(tmp_path / "s", tmp_path / "t", seed=5)
    assert describe_store(tmp_path / "t").provenance == {"by": "a test", "shuffled with seed": 5}


def test_what_is_no_store_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        describe_store(tmp_path / "s")

"""Batches of Arrow columns become features by column, with the values of a plain loop over rows."""

import numpy as np
import pyarrow as pa
import pytest

from daskkern.data.ingest.columns.encoder import Encoder, by_column
from daskkern.data.schema.column_statistics import Moments
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.schema.layout import is_by_column

FEW, MANY = tuple("abcde"), tuple(sorted(f"t{k}" for k in range(200)))
ENCODING = (
    ColumnEncoding("n", fill=7.5),
    ColumnEncoding("few", "onehot", FEW, "c"),
    ColumnEncoding("many", "onehot", MANY),
    ColumnEncoding("code", "code", MANY),
)


def batch_of(rows: int, as_dictionaries: bool) -> pa.RecordBatch:
    rng = np.random.default_rng(rows)
    few = [None if rng.random() < 0.1 else "" if rng.random() < 0.1 else str(rng.choice(FEW)) for _ in range(rows)]
    columns = {
        "n": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.2),
        "few": pa.array(few, pa.string()),
        "many": pa.array(rng.choice(MANY, rows)),
        "code": pa.array(np.where(rng.random(rows) < 0.2, "new", rng.choice(MANY, rows))),
    }
    texts = {name: column.dictionary_encode() if as_dictionaries else column for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({**texts, "n": columns["n"]})


def by_rows(batch: pa.RecordBatch) -> np.ndarray:
    found = []
    for row in batch.to_pylist():
        few, many = row["few"] or "c", row["many"]
        found.append(
            [7.5 if row["n"] is None else row["n"]]
            + [float(few == category) for category in FEW]
            + [float(many == category) for category in MANY]
            + [float(MANY.index(row["code"]) if row["code"] in MANY else len(MANY))]
        )
    return np.array(found, np.float32)


@pytest.mark.parametrize("as_dictionaries", [False, True])
def test_features_are_those_of_a_loop_over_rows(as_dictionaries: bool) -> None:
    encoder = Encoder(ENCODING, "mean", ("",))
    batch = batch_of(300, as_dictionaries)
    X = encoder.features(batch, np.dtype(np.float32), "a file", 0)
    assert X.shape == (300, encoder.n_features)
    assert encoder.n_features == len(encoder.feature_names)
    np.testing.assert_array_equal(X, by_rows(batch))


@pytest.mark.parametrize("rows", [1, 16, 4096, 10_000, 1 << 14])
def test_columns_are_contiguous_and_not_a_power_of_two_apart(rows: int) -> None:
    X = by_column(rows, 3, np.dtype(np.float32))
    assert X.shape == (3, rows)
    assert X.strides[1] == 4
    assert X.strides[0] % 128 == 64  # bytes: an odd number of cache lines


def test_statistics_of_columns_are_those_of_rows() -> None:
    X = np.random.default_rng(0).normal(3.0, 2.0, (5000, 70)).astype(np.float32)
    by_columns = np.asfortranarray(X)
    assert is_by_column(by_columns)
    one, other = Moments(70), Moments(70)
    assert all(one.update(X[i : i + 999]) for i in range(0, 5000, 999))
    assert all(other.update(by_columns[i : i + 1700]) for i in range(0, 5000, 1700))
    np.testing.assert_allclose(one.result().table(), other.result().table(), rtol=1e-12)
    np.testing.assert_allclose(one.result().mean, X.mean(axis=0, dtype=np.float64), rtol=1e-12)
    by_columns[4999, 69] = np.inf
    assert not Moments(70).update(by_columns)

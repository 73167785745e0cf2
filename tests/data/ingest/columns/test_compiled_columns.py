"""Columns converted in machine code: the bits are those of the plain conversion, and nothing beyond them is read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.ingest.columns.compiled import batch as compiled_batch
from daskkern.data.ingest.columns.compiled.batch import BatchConverter, is_worthwhile
from daskkern.data.ingest.columns.compiled.column_words import ColumnMemory
from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.schema.block_moments import column_moments
from daskkern.data.schema.encoding import ColumnEncoding, MissingChoice
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError

ROWS = 203
FLOAT32 = np.dtype(np.float32)
TEXTS = ("a", "b", "c", "d")

pytestmark = pytest.mark.skipif(
    not is_worthwhile(1 << 40, 1, FLOAT32), reason="columns are not compiled here; run on x86-64 or arm64"
)


def numbers(kind: pa.DataType, rng: np.random.Generator) -> HostArray:
    """Return values of the whole range of a type."""
    if pa.types.is_boolean(kind):
        return rng.random(ROWS) < 0.5
    if pa.types.is_floating(kind):
        far = rng.normal(size=ROWS) * 10.0 ** rng.integers(-40, 40, ROWS)
        with np.errstate(over="ignore"):
            values: HostArray = far.astype(kind.to_pandas_dtype())
        values[rng.integers(0, ROWS, 3)] = np.nan
        return values
    if not pa.types.is_integer(kind):
        return rng.integers(-(10**4), 10**4, ROWS) if pa.types.is_date(kind) else rng.integers(-(10**15), 10**15, ROWS)
    limits = np.iinfo(kind.to_pandas_dtype())
    return rng.integers(limits.min, limits.max, ROWS, dtype=limits.dtype, endpoint=True)


def batch_of(seed: int, gaps: float) -> pa.RecordBatch:
    """Return columns of all types that have compiled loops, and of some that have none."""
    rng = np.random.default_rng(seed)
    kinds = [
        *(pa.float32(), pa.float64(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16()),
        *(pa.uint32(), pa.uint64(), pa.bool_(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us", "UTC")),
        *(pa.timestamp("ns"), pa.timestamp("ms"), pa.float16()),
    ]
    columns: dict[str, pa.Array] = {}
    for kind in kinds:
        values = numbers(kind, rng)
        mask = rng.random(ROWS) < gaps if gaps else None
        if pa.types.is_date(kind):
            days = pa.array(values.astype(np.int32), pa.int32(), mask=mask)
            columns[str(kind)] = days.view(pa.date32()).cast(kind)
        elif pa.types.is_timestamp(kind):
            columns[str(kind)] = pa.array(values, pa.int64(), mask=mask).view(kind)
        else:
            columns[str(kind)] = pa.array(values, kind, mask=mask)
    for name in ("onehot", "ordinal", "code"):
        codes = pa.array(rng.integers(0, 4, ROWS).astype(np.int32), mask=rng.random(ROWS) < gaps if gaps else None)
        columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(["c", "a", "d", "b"]))
    return pa.record_batch(columns)


def encoder_of(names: Sequence[str], missing: MissingChoice = "mean", fill: float | None = 0.1) -> Encoder:
    columns = []
    for name in names:
        if name in ("onehot", "ordinal", "code"):
            columns.append(ColumnEncoding(name, name, TEXTS, None if fill is None else "b"))  # type: ignore[arg-type]
        else:
            columns.append(ColumnEncoding(name, fill=fill, is_date=name.startswith(("date", "time"))))
    return Encoder(tuple(columns), missing, ("?",))


def plainly(encoder: Encoder, batch: pa.RecordBatch) -> HostArray:
    with np.errstate(over="ignore"):
        return encoder.features(batch, FLOAT32, "file", 0)


def bits(X: HostArray) -> HostArray:
    return np.ascontiguousarray(X).view(np.uint32)


@pytest.mark.parametrize("gaps", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("fill", [0.1, None, 1e300])
@pytest.mark.parametrize(("start", "stop"), [(0, ROWS), (0, 16), (8, 41), (3, 150), (13, 14), (200, ROWS)])
def test_features_have_the_bits_of_the_plain_conversion(gaps: float, fill: float | None, start: int, stop: int) -> None:
    batch = batch_of(start, gaps).slice(start, stop - start)
    names = [name for name in batch.schema.names if not (gaps and fill is None and name in ("onehot", "ordinal"))]
    encoder, batch = encoder_of(names, fill=fill), batch.select(names)
    expected = plainly(encoder, batch)
    with np.errstate(over="ignore"):
        found = BatchConverter(encoder, batch.schema).rows(batch, "file", 0)
    both_nan = np.isnan(found.X) & np.isnan(expected)
    assert (both_nan | (bits(found.X) == bits(expected))).all()


def test_moments_are_right_to_rounding() -> None:
    batch = batch_of(1, 0.2)
    names = [name for name in batch.schema.names if name != "float"]  # which reaches 1e60
    encoder, batch = (
        encoder_of(["int64", "bool", "onehot", "code", "int8", "date32[day]"]),
        batch.select(["int64", "bool", "onehot", "code", "int8", "date32[day]"]),
    )
    assert set(encoder.columns) <= set(names)
    found = BatchConverter(encoder, batch.schema).rows(batch, "file", 0)
    expected = column_moments(plainly(encoder, batch), 1 << 20)
    assert found.moments is not None
    assert expected is not None
    np.testing.assert_array_equal(found.moments[:2], expected[:2])
    np.testing.assert_allclose(found.moments[2:], expected[2:], rtol=1e-13)
    assert found.is_finite


def test_moments_of_one_far_value_keep_the_spread_of_the_others() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=5000)
    batch = pa.record_batch({"x": values})
    found = BatchConverter(encoder_of(["x"]), batch.schema).rows(batch, "file", 0)
    assert found.moments is not None
    single = values.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(found.moments[2:, 0], [single.mean(), ((single - single.mean()) ** 2).sum()], rtol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("row", [0, 15, 16, 36])
def test_values_that_are_not_finite_show_in_the_moments(value: float, row: int) -> None:
    values = np.ones(37)
    values[row] = value
    batch = pa.record_batch({"x": values, "y": np.ones(37)})
    found = BatchConverter(encoder_of(["x", "y"], fill=None), batch.schema).rows(batch, "file", 0)
    assert found.moments is not None
    assert np.isnan(found.moments[:, 0]).all()
    assert not found.is_finite
    np.testing.assert_array_equal(found.moments[:, 1], [1, 1, 1, 0])


def test_an_index_beyond_its_dictionary_is_not_looked_up() -> None:
    indices = pa.array(np.array([0, 1, 1 << 30, 1], np.int32))
    broken = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    batch = pa.record_batch({"onehot": broken})
    with pytest.raises(IndexError):
        BatchConverter(encoder_of(["onehot"]), batch.schema).rows(batch, "file", 0)


def test_indices_of_missing_values_may_be_anything() -> None:
    values = np.array([0, -7, 1, 1 << 30], np.int32)
    indices = pa.Array.from_buffers(pa.int32(), 4, [pa.py_buffer(bytes([0b0101])), pa.py_buffer(values)])
    batch = pa.record_batch({"onehot": pa.DictionaryArray.from_arrays(indices, pa.array(["a", "d"]), safe=False)})
    encoder = encoder_of(["onehot"])
    found = BatchConverter(encoder, batch.schema).rows(batch, "file", 0)
    np.testing.assert_array_equal(found.X, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    np.testing.assert_array_equal(found.X, plainly(encoder, batch))


@dataclass
class Damaged:
    """A column whose buffers Arrow has not checked, as of a producer in another language."""

    bitmap: bytes
    values: bytes
    offset: int
    n_rows: int
    null_count: int = 1

    def __len__(self) -> int:
        return self.n_rows

    def buffers(self) -> list[pa.Buffer]:
        return [pa.py_buffer(self.bitmap), pa.py_buffer(self.values)]


def test_memory_that_is_smaller_than_the_rows_is_refused() -> None:
    assert ColumnMemory().of(Damaged(bytes(13), bytes(800), 8, 92), "float64", "x")[1]
    for array in (Damaged(bytes(13), bytes(799), 8, 92), Damaged(bytes(12), bytes(800), 8, 92)):
        with pytest.raises(DataError, match="column 'x' is damaged"):
            ColumnMemory().of(array, "float64", "x")
    with pytest.raises(DataError, match="column 'x' is damaged"):
        ColumnMemory().of(Damaged(b"", bytes(12), 0, 97, null_count=0), "boolean", "x")


def test_refusals_are_those_of_the_plain_conversion() -> None:
    batch = pa.record_batch({"x": pa.array([1.0, None]), "onehot": pa.array(["a", "z"]).dictionary_encode()})
    refusing = encoder_of(["x"], missing="refuse", fill=None)
    for encoder, message in (
        (refusing, "row 8 of file .* has no value in column 'x'"),
        (encoder_of(["onehot"]), "'z'"),
    ):
        with pytest.raises(DataError, match=message):
            BatchConverter(encoder, batch.schema).rows(batch, "file", 7)


def test_no_rows_have_no_moments() -> None:
    batch = batch_of(0, 0.0).slice(0, 0)
    encoder = encoder_of(batch.schema.names)
    found = BatchConverter(encoder, batch.schema).rows(batch, "file", 0)
    assert found.X.shape == (0, encoder.n_features)
    assert found.moments is None


def test_stores_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(0), 9000
    columns: dict[str, Any] = {
        f"x{j}": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1 * (j % 2)) for j in range(6)
    }
    columns["n"] = rng.integers(0, 9, n)
    columns["c"] = pa.array(np.array(TEXTS)[rng.integers(0, 4, n)], mask=rng.random(n) < 0.1)
    columns["y"] = rng.normal(size=n)
    for part in range(2):
        pq.write_table(pa.table(columns).slice(part * 5000, 5000), tmp_path / f"{part}.parquet", row_group_size=3000)
    infos = []
    for least in (1 << 60, 0):
        monkeypatch.setattr(compiled_batch, "LEAST_VALUES", least)
        ingest([str(tmp_path / f"{part}.parquet") for part in range(2)], tmp_path / f"{least}.zarr", target="y")
        infos.append(open_store(tmp_path / f"{least}.zarr").info)
    plain, compiled = infos
    assert plain.checksums == compiled.checksums
    np.testing.assert_allclose(plain.statistics.table(), compiled.statistics.table(), rtol=1e-12, atol=1e-15)
    assert plain.encoding is not None
    assert compiled.encoding is not None
    for one, other in zip(plain.encoding, compiled.encoding, strict=True):
        assert replace(one, fill=None) == replace(other, fill=None)
        assert one.fill == (other.fill if isinstance(other.fill, str) else pytest.approx(other.fill, rel=1e-12))

"""Texts in dictionaries become the features of plain texts, whatever part of a batch is encoded."""

import numpy as np
import pyarrow as pa
import pytest

from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.schema.encoding import ColumnEncoding

KINDS = (
    ColumnEncoding("kind", "onehot", ("blue", "green", "red"), "red"),
    ColumnEncoding("kind", "ordinal", ("blue", "green", "red"), "blue"),
    ColumnEncoding("kind", "code", ("blue", "green", "red"), None),
    ColumnEncoding("kind", "onehot", tuple(sorted(["blue", "green", "red", *(f"kind {k}" for k in range(40))])), "red"),
)


@pytest.mark.parametrize("column", KINDS)
@pytest.mark.parametrize("index", [pa.int8(), pa.int32(), pa.int64()])
def test_missing_texts_of_a_dictionary_are_filled_wherever_a_slice_begins(
    column: ColumnEncoding, index: pa.DataType
) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", ""])
    texts = [None if gap else word for gap, word in zip(rng.random(100) < 0.3, rng.choice(words, 100), strict=True)]
    plain = pa.array(texts, pa.string())
    coded = plain.dictionary_encode().cast(pa.dictionary(index, pa.string()))
    encoder = Encoder((column,), "mean", ("",))
    for start, stop in ((0, 100), (3, 100), (8, 64), (13, 14), (99, 100), (50, 50)):
        found, expected = (
            encoder.features(
                pa.RecordBatch.from_arrays([rows.slice(start, stop - start)], ["kind"]), np.dtype(np.float32), "rows", 0
            )
            for rows in (coded, plain)
        )
        np.testing.assert_array_equal(found, expected, strict=True)


def test_a_gap_beside_as_many_texts_as_the_indices_can_number() -> None:
    texts = pa.array([f"t{k:03}" for k in range(128)])
    values = pa.DictionaryArray.from_arrays(pa.array([127, None], pa.int8()), texts)
    column = ColumnEncoding("c", "code", tuple(texts.to_pylist()))
    encoder = Encoder((column,), "mean", ("",))
    batch = pa.RecordBatch.from_pydict({"c": values})
    np.testing.assert_array_equal(encoder.features(batch, np.dtype(np.float32), "a file", 0), [[127.0], [128.0]])

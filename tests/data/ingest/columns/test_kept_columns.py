"""Columns of CSV files that are carried through: numbers where none loses by it, else texts."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from daskkern.data.ingest.columns.copied_columns import kept_types


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", "0"], pa.int64()),
        (["1", "", "3"], pa.int64()),
        (["", ""], pa.int64()),
        (["0.5", "", "3"], pa.float64()),
        (["0.5", "-1e-05", "3"], pa.float64()),
        (["2.50", "12345678901234567890"], pa.string()),
        (["007", "1"], pa.string()),
        (["00.5"], pa.string()),
        (["1", "x"], pa.string()),
        (["1,5"], pa.string()),
        (["nan"], pa.string()),
    ],
)
def test_the_types_of_columns(texts: list[str], kind: pa.DataType) -> None:
    def batches(types: dict[str, pa.DataType], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert (list(types), list(names)) == (["k"], ["k"])
        for text in texts:
            yield pa.record_batch({"k": [text]})

    assert kept_types([batches], ["k"]) == {"k": kind}

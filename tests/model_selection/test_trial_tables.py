"""The table of trials."""

import json

import numpy as np
import pytest

from daskkern.model_selection import TrialRow, TrialTable

TABLE = TrialTable(
    (
        TrialRow("defaults", "fit", 1000, 5, 0.5, 0.125, 2.5),
        TrialRow("<gaussian>", "ridge", 1000, 5, verdict="failed: no"),
    ),
    "chosen: defaults & nothing else",
)


def test_columns_rows_and_slices() -> None:
    assert len(TABLE) == 2
    assert TABLE[-1].verdict == "failed: no"
    assert TABLE[:1] == TABLE.rows[:1]
    assert TABLE["rows"].dtype == np.int64
    np.testing.assert_array_equal(TABLE["loss"], [0.5, np.nan])
    assert TABLE.to_pandas()["error"].tolist()[0] == 0.125
    with pytest.raises(KeyError, match="candidate"):
        TABLE["score"]


def test_texts_are_readable_and_safe() -> None:
    lines = repr(TABLE).splitlines()
    assert lines[0].split() == list(TABLE.columns)
    assert "12.50%" in lines[1]
    assert lines[-1] == TABLE.note
    html = TABLE._repr_html_()
    assert "&lt;gaussian&gt;" in html
    assert "<gaussian>" not in html


def test_it_comes_back_from_json() -> None:
    again = TrialTable.from_json(json.loads(json.dumps(TABLE.to_json(), allow_nan=False)))
    assert again.rows[0] == TABLE.rows[0]
    assert repr(again) == repr(TABLE)
    with pytest.raises((KeyError, TypeError, ValueError)):
        TrialTable.from_json({"trials": [{"candidate": "x"}], "note": ""})

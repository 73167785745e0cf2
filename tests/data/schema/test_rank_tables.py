"""Ranks of features do not change with increasing functions of them, and survive being recorded."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import quantile_transform

from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.column_statistics import Moments
from daskkern.data.schema.learned_scaling import learned_scaling, ranked_scaling
from daskkern.data.schema.rank_tables import MOST_KNOTS, RankTable, rank_tables, tables_from_json
from daskkern.errors import SpecError


def _ranked(X: np.ndarray) -> Scaling:
    moments = Moments(X.shape[1])
    assert moments.update(X)
    return ranked_scaling(learned_scaling("auto", moments.result(), X, bend=False), X)


def _reference(x: np.ndarray) -> np.ndarray:
    """Return the ranks of the values of a sample, one after the other."""
    room = {value: float((x == value).sum()) ** 0.5 for value in sorted(set(x.tolist()))}
    found = [(sum(room[v] for v in room if v < value) + room[value] / 2) / sum(room.values()) for value in x]
    return (np.array(found) - np.mean(found)) / max(np.std(found), 0.15)


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.integers(3, 60), elements=st.integers(-20, 20).map(float)))
def test_ranks_are_those_of_counting(x: np.ndarray) -> None:
    tables = rank_tables(x[:, None], [0])
    if len(np.unique(x)) < 3:
        assert tables == ()
        return
    np.testing.assert_allclose(tables[0].apply(x), _reference(x), atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.float64, st.integers(3, 60), elements=st.integers(-5, 5).map(float)))
def test_an_increasing_function_of_a_feature_has_the_same_ranks(x: np.ndarray) -> None:
    X = np.column_stack([x, np.exp(x), x**3 + 1e6])
    Z = _ranked(X).apply(X, np.float64)
    if len(np.unique(x)) < 3:
        return
    np.testing.assert_allclose(Z[:, 1], Z[:, 0], atol=1e-12)
    np.testing.assert_allclose(Z[:, 2], Z[:, 0], atol=1e-12)


def test_distinct_values_have_the_ranks_of_scikit_learn() -> None:
    x = np.random.default_rng(0).standard_cauchy((MOST_KNOTS, 1))
    theirs = quantile_transform(x, n_quantiles=MOST_KNOTS)[:, 0]
    ours = rank_tables(x, [0])[0].apply(x[:, 0])
    np.testing.assert_allclose(ours, (theirs - theirs.mean()) / theirs.std(), atol=1e-9)


@pytest.mark.long
def test_a_table_of_many_values_is_short_and_close_and_ends_where_the_sample_does() -> None:
    x = np.random.default_rng(0).exponential(size=5000)
    (table,) = rank_tables(x[:, None], [0])
    assert len(table.values) <= MOST_KNOTS
    np.testing.assert_allclose(table.apply(x), _reference(x), atol=0.02)
    assert np.array_equal(table.apply(np.array([-9.0, 1e9])), table.apply(np.array([x.min(), x.max()])))


def test_very_many_features_have_short_tables() -> None:
    X = np.random.default_rng(0).standard_normal((300, 2000))
    assert sum(len(table.values) for table in rank_tables(X, range(2000))) < 1 << 16


def test_features_of_two_values_and_constants_are_scaled_as_ever() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(200), rng.integers(0, 2, 200), np.full(200, 3.0)])
    found = _ranked(X)
    assert [table.column for table in found.ranks] == [0]
    np.testing.assert_allclose(np.unique(np.diff(np.unique(found.apply(X, np.float64)[:, 1]))), [2.0])
    assert (found.apply(X, np.float64)[:, 2] == 0).all()


def test_values_keep_their_ranks_in_float32_and_wide_integers() -> None:
    x = np.arange(1_600_000_000, 1_600_000_200, dtype=np.int64)
    scaling = _ranked(x[:, None].astype(np.float64))
    np.testing.assert_allclose(scaling.apply(x[:, None], np.float32)[:, 0], _reference(x), atol=1e-6)
    small = np.random.default_rng(0).standard_normal((99, 2)).astype(np.float32)
    kept = small.copy()
    Z = _ranked(small.astype(np.float64)).apply(small, np.float32)
    np.testing.assert_allclose(Z[:, 0], _reference(small[:, 0].astype(np.float64)), atol=1e-5)
    assert np.array_equal(small, kept)


def test_tables_are_recorded() -> None:
    scaling = _ranked(np.random.default_rng(0).standard_normal((50, 3)))
    recorded = json.loads(json.dumps(scaling.to_json()))
    assert tables_from_json(recorded) == scaling.ranks
    assert tables_from_json({}) == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"ranks": 3},
        {"ranks": [3]},
        {"ranks": [{"column": 0, "values": [0, 1]}]},
        {"ranks": [{"column": 0, "values": [0, 1], "ranks": [0]}]},
        {"ranks": [{"column": 0, "values": [1, 0], "ranks": [0, 1]}]},
        {"ranks": [{"column": 0, "values": [0, float("nan")], "ranks": [0, 1]}]},
        {"ranks": [{"column": -1, "values": [0, 1], "ranks": [0, 1]}]},
        {"ranks": [{"column": 0, "values": [0, "x"], "ranks": [0, 1]}]},
    ],
)
def test_a_damaged_table_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="learn the scaling again"):
        tables_from_json(entry)


def test_tables_belong_to_columns() -> None:
    table = RankTable(2, (0.0, 1.0), (0.0, 1.0))
    with pytest.raises(SpecError, match=r"columns \[2\] out of 2"):
        Scaling("ranks", (0.0, 0.0), (1.0, 1.0), (), (table,))
    with pytest.raises(SpecError, match=r"columns \[2, 2\] out of 3"):
        Scaling("ranks", (0.0,) * 3, (1.0,) * 3, (), (table, table))

"""The division of units over ranks of different ability: against trying all divisions, and laws."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.training.planning.balanced_division import divide, even_shares, makespan, relative_speeds

RANKS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([1.0, 1.19, 2.0, 8.0])), min_size=1, max_size=6
)  # the most units, and the speed


@given(RANKS, st.integers(1, 60), st.integers(0, 2))
def test_every_unit_has_a_rank_with_room_for_it(ranks: list[tuple[int, float]], total: int, least: int) -> None:
    most, speeds = zip(*ranks, strict=True)
    shares = divide(total, most, speeds, least)
    fits = sum(most) >= total >= least * len(most) and min(most) >= least
    assert (shares is not None) == fits
    if shares is not None:
        assert sum(shares) == total
        assert all(least <= share <= limit for share, limit in zip(shares, most, strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([1.0, 1.5, 4.0])), min_size=2, max_size=3),
    st.integers(1, 9),
)
def test_no_division_within_the_limits_is_faster(ranks: list[tuple[int, float]], total: int) -> None:
    most, speeds = zip(*ranks, strict=True)
    every = [shares for shares in itertools.product(*(range(limit + 1) for limit in most)) if sum(shares) == total]
    found = divide(total, most, speeds)
    if found is None:
        assert not every
        return
    assert makespan(found, speeds) == pytest.approx(min(makespan(shares, speeds) for shares in every))


@given(st.integers(1, 7), st.integers(1, 100))
def test_equal_ranks_have_about_the_same(size: int, total: int) -> None:
    found = divide(total, (total,) * size, (2.0,) * size)
    assert found == even_shares(total, size, consecutive=False)
    ranges = even_shares(total, size, consecutive=True)
    assert sum(ranges) == total
    assert max(ranges) - min(ranges) <= 1


def test_a_fast_rank_has_more_until_its_memory_is_full() -> None:
    assert divide(24, (24, 24), (1.0, 3.0)) == (6, 18)
    assert divide(24, (24, 10), (1.0, 3.0)) == (14, 10)
    assert makespan((6, 18), (1.0, 3.0)) == pytest.approx(0.25)


def test_speeds_are_those_of_kinds_in_steps() -> None:
    kinds, rates = ("a", "b", "a", "a"), (100.0, 205.0, 103.0, 55.0)
    speeds = relative_speeds(kinds, rates)
    assert speeds == (1.0, 2.0, 1.0, 1.0), "a noisy measurement of one of a kind does not count"
    assert relative_speeds(("a", "b"), (100.0, 108.0)) == (1.0, 1.0)
    steps = np.log2(relative_speeds(tuple("abcd"), (1.0, 1.3, 7.0, 33.0))) * 4
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-12)

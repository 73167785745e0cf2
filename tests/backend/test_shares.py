"""Units of work that are assigned to ranks by shares: laws, and what they promise of every beginning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.backend.shares import owners_of, share_edges

SHARES = st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any).map(tuple)


@given(SHARES)
def test_shares_that_sum_to_the_units_are_their_numbers(shares: tuple[int, ...]) -> None:
    owners = owners_of(sum(shares), len(shares), shares)
    assert tuple(owners.count(rank) for rank in range(len(shares))) == shares


@given(SHARES, st.integers(0, 200))
def test_every_beginning_is_distributed_by_the_shares(shares: tuple[int, ...], count: int) -> None:
    size, owners = len(shares), np.array(owners_of(count, len(shares), shares), int)
    first = np.arange(1, count + 1)
    for rank, share in enumerate(shares):
        units = np.cumsum(owners == rank)
        assert (units <= share / sum(shares) * (first + size - 1) + 1e-9).all()


@given(st.integers(1, 9), st.integers(0, 100), st.integers(1, 5))
def test_equal_shares_are_rank_after_rank(size: int, count: int, share: int) -> None:
    assert owners_of(count, size, (share,) * size) == owners_of(count, size) == tuple(k % size for k in range(count))


@pytest.mark.long
@given(SHARES, st.integers(0, 200))
def test_ranges_follow_each_other(shares: tuple[int, ...], count: int) -> None:
    edges = share_edges(count, len(shares), shares)
    assert edges[0] == 0
    assert edges[-1] == count
    assert edges == sorted(edges)
    exact = share_edges(sum(shares), len(shares), shares)
    assert tuple(np.diff(exact)) == shares
    assert share_edges(count, len(shares)) == [count * k // len(shares) for k in range(len(shares) + 1)]


@pytest.mark.parametrize("shares", [(1, 2), (0, 0, 0), (1, -1, 3)])
def test_shares_of_other_ranks_are_refused(shares: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected a number of 0 or more for each, not all 0"):
        owners_of(6, 3, shares)
    with pytest.raises(ValueError, match="expected a number of 0 or more for each, not all 0"):
        share_edges(6, 3, shares)

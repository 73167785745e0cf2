"""Pairwise combinations hold every pair of values, and are few."""

import itertools

import pytest

from tests.support.covering import pairwise


@pytest.mark.parametrize("counts", [(2, 2), (2, 2, 2), (3, 4, 2, 5), (12, 2, 2, 4), (1, 6, 3)])
def test_every_two_values_meet(counts: tuple[int, ...]) -> None:
    found = pairwise(*(range(count) for count in counts))
    for (i, one), (j, other) in itertools.combinations(enumerate(counts), 2):
        met = {(combination[i], combination[j]) for combination in found}
        assert met == set(itertools.product(range(one), range(other)))
    assert found == sorted(set(found))
    fewest = sorted(counts)[-1] * sorted(counts)[-2]
    assert fewest <= len(found) <= fewest + 2

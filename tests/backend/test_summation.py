"""The tree of sums: the stupid way adds the same, parts of it give the same bits, and nothing is modified."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.backend.summation import add_in_order, add_stacked, n_pairs, node_sum, nodes_of


def _stupid(terms: list[np.ndarray]) -> np.ndarray:
    """Add neighbours until one is left; first as many of them as leave a power of two."""
    pairs = n_pairs(len(terms))
    level = [terms[2 * i] + terms[2 * i + 1] for i in range(pairs)] + terms[2 * pairs :]
    while len(level) > 1:
        level = [level[i] + level[i + 1] for i in range(0, len(level), 2)]
    return level[0]


def _terms(size: int, shape: tuple[int, ...] = (7,)) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    return [np.asarray(10.0 ** rng.integers(-6, 6) * rng.standard_normal(shape), "float32") for _ in range(size)]


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 11, 31])
def test_neighbours_are_added(size: int, shape: tuple[int, ...]) -> None:
    terms = _terms(size, shape)
    kept = [term.copy() for term in terms]
    found = add_in_order(terms)
    np.testing.assert_array_equal(found, np.asarray(_stupid(kept)), strict=True)
    np.testing.assert_array_equal(found.shape, shape)
    found[...] = 0  # its own memory
    for term, before in zip(terms, kept, strict=True):
        np.testing.assert_array_equal(term, before)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 11, 31])
def test_stacked_terms_have_the_same_sum_level_by_level(size: int, shape: tuple[int, ...]) -> None:
    terms = np.stack(_terms(size, shape))
    kept = terms.copy()
    found = add_stacked(terms)
    np.testing.assert_array_equal(found, add_in_order(list(terms)))
    assert found.shape == shape
    assert not np.shares_memory(found, terms)
    np.testing.assert_array_equal(terms, kept)


@given(size=st.integers(1, 70), data=st.data())
def test_any_division_into_consecutive_parts_has_the_same_bits(size: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, size - 1), max_size=5))) if size > 1 else []
    terms, parts = _terms(size), {}
    for low, high in zip([0, *cuts], [*cuts, size], strict=True):
        nodes = nodes_of(low, high, size)
        assert [i for start, stop in nodes for i in range(start, stop)] == list(range(low, high))
        assert len(nodes) <= 2 * np.log2(size) + 2
        own = {(i, i + 1): terms[i] for i in range(low, high)}
        parts |= {node: node_sum(node, size, own) for node in nodes}
    np.testing.assert_array_equal(node_sum((0, size), size, parts), add_in_order(terms))


def test_a_missing_term_is_named() -> None:
    with pytest.raises(KeyError, match="term 2"):
        node_sum((0, 4), 4, {(0, 2): np.ones(1), (3, 4): np.ones(1)})

"""Comparison of stores that were written in different ways."""

import numpy as np
import pytest

from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import open_store


def assert_same_stores(one: str, other: str) -> None:
    """Check that two stores have the same rows and describe them alike, up to rounding."""
    a, b = open_store(one), open_store(other)
    assert list(a.array_names()) == list(b.array_names())
    for name in a.array_names():
        np.testing.assert_array_equal(np.asarray(a.array(name)[:]), np.asarray(b.array(name)[:]))
    assert a.info.checksums == b.info.checksums
    for name in ("n_rows", "chunk_rows", "classes", "class_counts", "feature_names", "target_names", "has_weight"):
        assert getattr(a.info, name) == getattr(b.info, name)
    for mine, theirs in zip(a.info.encoding or (), b.info.encoding or (), strict=True):
        assert (mine.name, mine.kind, mine.categories) == (theirs.name, theirs.kind, theirs.categories)
        assert mine.fill == pytest.approx(theirs.fill)
    assert a.info.scaling.kind == b.info.scaling.kind
    np.testing.assert_allclose(a.info.scaling.scale, b.info.scaling.scale, rtol=1e-12)
    np.testing.assert_allclose(a.info.statistics.mean, b.info.statistics.mean, rtol=1e-12)
    assert check_store(one).findings == ()

"""Shares of a run: each case is in one of them, whatever the number."""

import pytest

from tests.support.runs.repetitions import in_share, share

NAMES = [f"tests/test_a.py::test_b[{i}]" for i in range(300)]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_every_case_is_in_one_share(parts: int) -> None:
    counts = [sum(in_share(name, part, parts) for name in NAMES) for part in range(1, parts + 1)]
    assert sum(counts) == len(NAMES)
    assert min(counts) > len(NAMES) / parts / 2
    assert all(sum(in_share(name, part, parts) for part in range(1, parts + 1)) == 1 for name in NAMES)


def test_a_share_is_read() -> None:
    assert share("2/3") == (2, 3)
    for wrong in ("", "0/3", "4/3", "1", "a/b", "-1/2"):
        with pytest.raises(ValueError, match=r"expected K/N with K from 1 to N"):
            share(wrong)

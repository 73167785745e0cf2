"""Tests are dealt by files, and one by one where they share nothing."""

from pathlib import Path

import pytest

from tests.support.runs.dealing import APART, unit_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("file", APART)
def test_tests_that_share_nothing_are_dealt_one_by_one(file: str) -> None:
    text = (ROOT / file).read_text()
    assert 'scope="module"' not in text
    assert unit_of(f"{file}::test_a[1]") != unit_of(f"{file}::test_a[2]")


def test_others_are_dealt_by_file() -> None:
    assert unit_of("tests/a.py::test_a[x::y]") == unit_of("tests/a.py::test_b") == "tests/a.py"

"""How sure the points of a reliability diagram are: Wilson's interval, and neighbours joined where rows are few."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.stats import binomtest

from daskkern.evaluation.metrics import Score
from daskkern.evaluation.score_bins import CalibrationBin, joined_bins
from daskkern.plot.predictions import draw_calibration


def _bins(counts: list[int]) -> list[CalibrationBin]:
    k = len(counts)
    return [CalibrationBin(i / k, (i + 1) / k, n, (i + 0.5) / k, (n // 2) / n) for i, n in enumerate(counts) if n > 0]


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (3, 7), (50, 100), (100, 100), (999, 1000)])
def test_the_interval_is_wilsons(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    found = CalibrationBin(0.0, 1.0, n, 0.5, right / n).interval()
    assert found == pytest.approx((expected.low, expected.high), abs=1e-6)


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=15).filter(any))
def test_joined_bins_have_enough_rows_and_are_of_the_same(counts: list[int]) -> None:
    bins = _bins(counts)
    found = joined_bins(bins, 10)
    assert all(part.n_rows >= 10 for part in found) or len(found) == 1
    assert sum(part.n_rows for part in found) == sum(counts)
    for name in ("confidence", "accuracy"):
        sums = [sum(part.n_rows * getattr(part, name) for part in some) for some in (bins, found)]
        assert sums[0] == pytest.approx(sums[1])
    assert all(first.upper <= second.lower for first, second in pairwise(found))


def test_a_diagram_shows_intervals_of_its_points() -> None:
    score = Score(n_rows=43, calibration=tuple(_bins([1, 2, 30, 10])))
    axes = draw_calibration(score, Figure().subplots())
    assert axes.get_lines()[1].get_xdata().size == 2
    assert "95% interval" in [text.get_text() for text in axes.get_legend().get_texts()]

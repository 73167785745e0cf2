"""What rules hold while they choose, as NumPy allocates it, stays below what they say."""

import numpy as np
import pytest

from daskkern.data.rows.array_rows import ArrayRows
from daskkern.kernels import Gaussian
from daskkern.landmarks import SELECTORS
from tests.support.traced_memory import traced_peak

N_ROWS, D, N = 12_000, 40, 600


@pytest.mark.one_in(5, 2)
@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "stratified"])
def test_rules_hold_no_more_than_they_say(name: str) -> None:
    rng = np.random.default_rng(0)
    rows = ArrayRows(rng.standard_normal((N_ROWS, D)).astype(np.float32), dtype=np.float32)
    rule = SELECTORS[name]()
    rule.select(rows, Gaussian(3.0), 20, 0)  # what is imported and compiled at first use is not counted
    said = rule.working_bytes(N_ROWS, N, D, 4)
    peak = traced_peak(lambda: rule.select(rows, Gaussian(3.0), N, 0))
    shared = 8 * N_ROWS + 4 * N * D * 4 + (4 << 20)  # the draw, the landmarks, tiles and small things
    assert peak <= said + shared
    assert said < 3 * peak + (8 << 20)

"""The cost of a fit in worker-hours and GPU-hours."""

import math

import pytest

from daskkern.training.planning.fit_cost import FitCost


@pytest.mark.parametrize(
    ("cost", "hours", "words"),
    [
        (FitCost(4, 1800.0), 2.0, "cost: about 2 worker-hours: 4 workers for 30 min"),
        (FitCost(1, 0.36), 0.0001, "cost: less than 0.001 worker-hours: 1 worker for 0.36 s"),
        (FitCost(1, 36.0), 0.01, "cost: about 0.01 worker-hours: 1 worker for 36 s"),
        (FitCost(8, 7200.0, on_gpus=True), 16.0, "cost: about 16 GPU-hours: 8 GPUs for 2 h"),
        (
            FitCost(2, 7200.0, limit_s=1800.0),
            1.0,
            "cost: at most 1 worker-hours: 2 workers for 30 min, the limit of --max-seconds",
        ),
        (FitCost(2, 1800.0, limit_s=7200.0), 1.0, "cost: about 1 worker-hours: 2 workers for 30 min"),
        (
            FitCost(2, math.inf, on_gpus=True, limit_s=3600.0),
            2.0,
            "cost: at most 2 GPU-hours: 2 GPUs for 60 min, the limit of --max-seconds",
        ),
        (
            FitCost(2, math.inf, on_gpus=True),
            math.inf,
            "cost: 2 GPUs for as long as the fit takes; --max-seconds limits the GPU-hours",
        ),
    ],
)
def test_a_cost_is_workers_times_hours(cost: FitCost, hours: float, words: str) -> None:
    assert cost.hours == pytest.approx(hours)
    assert cost.in_words() == words

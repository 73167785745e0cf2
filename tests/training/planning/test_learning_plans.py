"""What plans say of feature learning: the arithmetic, never the clock."""

from dataclasses import replace

import pytest

from daskkern import FeatureLearning
from daskkern.basis import Landmarks
from daskkern.feature_learning.costs import LearningCosts
from daskkern.solvers import EigenPro
from daskkern.training.feeding.disk_rates import DiskRates
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.timing import Rates, estimate
from daskkern.training.setup.learned_metric import candidate_count, learning_costs
from tests.support.plans import planned_settings, planned_source

RATES = Rates(5.0, 4.0, 1.0, 1e10, 1e10, 1e10, 1e9, 1e-6, 1e-5, 500, DiskRates("/x", 10**12, 1e9, 1e9, False), 0.5)
COSTS = LearningCosts(10**6, 500, 500, 2, FeatureLearning("full", n_rows="all"), full=True)
PLAN = upper_bound_plan(planned_source(), planned_settings(Landmarks(300), EigenPro()), 1, 2, 8 << 30)


def _plan(learning: FeatureLearning | None, ranks: int = 1) -> MemoryPlan:
    settings = replace(planned_settings(Landmarks(300), EigenPro()), learn_features=learning)
    return upper_bound_plan(planned_source(), settings, ranks, 2, 8 << 30)


def test_more_of_anything_never_needs_less_memory() -> None:
    for name, value in (("n_rows", 10**7), ("d", 900), ("width", 900), ("c", 50)):
        more = replace(COSTS, **{name: value})
        assert more.sample_bytes(2) >= COSTS.sample_bytes(2), name
        assert more.pass_bytes(1000, 4, 2) >= COSTS.pass_bytes(1000, 4, 2), name
    assert COSTS.pass_bytes(1000, 4, 8) > COSTS.pass_bytes(1000, 4, 1)


def test_many_outputs_are_counted() -> None:
    sampled = replace(COSTS, n_rows=20_000, d=10, width=10, full=False)
    assert replace(sampled, c=1000).sample_bytes(1) > sampled.sample_bytes(1) + 8 * 5 * 20_000 * 998


def test_no_matrix_of_all_pairs_of_many_features_is_planned() -> None:
    wide = replace(COSTS, d=50_000, width=50_000, learning=FeatureLearning("full", rank=16, n_rows="all"))
    assert wide.pass_bytes(16, 4, 2) < 8 * 50_000**2 / 4
    assert replace(wide, d=2048, width=2048).pass_bytes(16, 4, 2) > 6 * 8 * 2048**2


def test_a_plan_has_the_larger_of_the_sample_and_the_pass() -> None:
    none, sampled, everything = (
        _plan(learning).total
        for learning in (None, FeatureLearning(n_landmarks=2000), FeatureLearning(n_landmarks=2000, n_rows="all"))
    )
    assert none < sampled <= everything


def test_the_time_begins_with_the_stage_of_learned_features() -> None:
    plain = estimate(PLAN, RATES, 3)
    found = estimate(PLAN, RATES, 3, learning=COSTS, candidates=2)
    first = found.stages[0]
    assert first.name == "learned features"
    assert found.stages[1:] == plain.stages
    assert found.total == pytest.approx(plain.total + first.seconds)
    assert set(dict(first.parts)) == {
        "trials on sampled rows",
        "reading the sample",
        "gradients at all rows",
        "reading",
    }


def test_a_pass_takes_its_share_on_each_rank_and_a_sample_none() -> None:
    assert PLAN.sizes is not None
    shared = replace(PLAN, sizes=replace(PLAN.sizes, ranks=4))
    alone, four = (
        dict(estimate(plan, RATES, 1, learning=COSTS).stages[0].parts)["gradients at all rows"]
        for plan in (PLAN, shared)
    )
    assert four == pytest.approx(alone / 4)
    sampled = replace(COSTS, learning=FeatureLearning("full"))
    assert "gradients at all rows" not in dict(estimate(PLAN, RATES, 1, learning=sampled).stages[0].parts)


def test_settings_say_what_is_tried() -> None:
    settings, info = planned_settings(Landmarks(300), EigenPro()), planned_source().info
    assert learning_costs(settings, info, 100, 4, 1) is None
    for metric, kernels in (("auto", 2), ("full", 1), ("diagonal", 1)):
        changed = replace(settings, learn_features=FeatureLearning(metric))
        assert candidate_count(changed) == kernels
        found = learning_costs(changed, info, 100, 4, 1)
        assert found is not None
        assert found.full == (metric != "diagonal")
    assert candidate_count(settings) == 0

"""Plans of groups of ranks: chosen by the time of a step and by memory; bytes and sums are those of a run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.cli.plan import _here
from daskkern.cluster.collectives.probe import MessageTimes
from daskkern.errors import MemoryBudgetError
from daskkern.events import EpochFinished, Event
from daskkern.losses import Logistic, Squared
from daskkern.solvers import PCG, EigenPro
from daskkern.training.planning.columns_of_workers import Divider
from daskkern.training.planning.grids import GridChoice, StepRates, gathered_bytes, step_seconds, step_sums
from daskkern.training.planning.planner import summarise, upper_bound_summary
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.planning.sizes_of_fits import sizes_of
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, toy_settings, toy_source
from tests.support.plans import planned_settings, unread_source

MB = 1_000_000
SOURCE = unread_source(200_000, 784)


def _settings(p: int, groups: int | str = "auto", **more: Any) -> FitSettings:
    made = planned_settings(Landmarks(p), EigenPro(subsample=500, window=1), batch_size=5000, keep_blocks="never")
    return replace(made, groups=groups, **more)


def _plans(
    settings: FitSettings,
    ranks: int,
    budget: int = 8000,
    rates: StepRates | None = None,
    mixed: bool = False,
    per_host: int = 1,
) -> RankPlans:
    kinds = ["one"] * (ranks - 1) + ["other" if mixed else "one"]
    places = [f"tcp://10.0.0.{rank // per_host}:{rank % per_host + 1}" for rank in range(ranks)]
    workers = [WorkerResources(1, MB * budget, None, 0, kind, place) for kind, place in zip(kinds, places, strict=True)]
    return Divider(upper_bound_summary(SOURCE, settings), SOURCE, settings, workers, rates=rates).plans()


def test_small_models_on_many_ranks_are_in_groups() -> None:
    small, large = _plans(_settings(2_000), 64), _plans(_settings(150_000), 64, budget=64_000)
    assert small.groups > 1
    assert 64 % small.groups == 0
    assert small.grid.grid_s < 0.9 * small.grid.alone_s
    assert large.groups == 1
    sizes = small.tightest.sizes
    assert sizes is not None
    assert (sizes.ranks, sizes.groups) == (64 // small.groups, small.groups)
    assert f"{small.groups} groups of {64 // small.groups} ranks" in small.grid.in_words(64)
    assert large.grid.in_words(64) == ""


def test_sums_in_the_memory_of_hosts_need_fewer_groups() -> None:
    """Groups save messages. Ranks of one host send none for sums of scores."""
    found = [_plans(_settings(5_000), 64, per_host=per_host).grid for per_host in (1, 8, 64)]
    assert found[0].alone_s > found[1].alone_s > found[2].alone_s
    assert found[0].groups > found[2].groups


def test_few_or_different_ranks_and_other_solvers_are_one_group() -> None:
    assert _plans(_settings(2_000), 6).grid == GridChoice()
    for groups in ("auto", 4):
        assert _plans(_settings(2_000, groups), 16, mixed=True).groups == 1
    assert _plans(_settings(2_000, virtual_shards=16), 16).groups == 1
    one = replace(planned_settings(AllRows(), EigenPro(), batch_size=5000), loss=Squared(), solver=PCG())
    workers = [WorkerResources(1, 60_000 * MB, None, 0)] * 16
    assert Divider(upper_bound_summary(SOURCE, one), SOURCE, one, workers).plans().groups == 1


@pytest.mark.parametrize(("ranks", "wanted", "groups"), [(4, 2, 2), (3, 2, 1), (6, 4, 3), (4, 9, 4), (5, 5, 5)])
def test_the_largest_number_that_divides_the_ranks_is_used(ranks: int, wanted: int, groups: int) -> None:
    plans = _plans(_settings(2_000, wanted), ranks)
    assert plans.groups == groups
    assert not plans.grid.chosen
    words = plans.grid.in_words(ranks)
    assert ("as requested" in words) == (groups == wanted)
    assert (f"instead of {wanted} groups, whose number must divide" in words) == (groups < wanted)


def test_memory_limits_the_groups() -> None:
    settings = _settings(20_000, 4)
    plans = {groups: _plans(replace(settings, groups=groups), 8, 60_000).tightest for groups in (1, 2, 4)}
    needed = {groups: plan.without_any_rows().total // MB for groups, plan in plans.items()}
    assert needed[1] < needed[2] < needed[4]
    assert _plans(settings, 8, needed[4] + 1).groups == 4
    assert _plans(settings, 8, needed[4] - 1).groups == 2
    assert _plans(settings, 8, needed[2] - 1).groups == 1
    with pytest.raises(MemoryBudgetError):
        _plans(settings, 8, 400).check()


def test_slow_messages_and_fast_products_call_for_more_groups() -> None:
    settings = _settings(20_000)
    rates = StepRates(1e-7, 1e-8, MessageTimes(1e-5, 1e-5, 1e10))
    slow = StepRates(1e-9, 1e-10, MessageTimes(5e-3, 1e-3, 1e8))
    assert _plans(settings, 16, rates=rates).groups < _plans(settings, 16, rates=slow).groups
    near = replace(slow, entry_s=1.1e-9, messages=replace(slow.messages, rate=0.95e8))
    assert near.rounded() == slow.rounded()


BYTES: dict[str, tuple[BasisSpec, EigenPro]] = {
    "features": (RandomFeatures(60), EigenPro()),
    "all rows": (AllRows(), EigenPro()),
}


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("groups", [1, 2])
def test_the_bytes_of_the_plan_are_those_that_are_sent(name: str, groups: int) -> None:
    """Threads send what they add to every other rank: with two ranks in each sum, its bytes once."""
    settings = replace(toy_settings(*BYTES[name], Logistic()), batch_size=26, max_epochs=1)
    shared, seen = Fit.of(toy_source(), settings), list[Event]()
    shared.results(2 * groups, groups=groups, listen=seen.append)
    (sent,) = [event.bytes_sent for event in seen if isinstance(event, EpochFinished)]
    summary = summarise(shared.prepared, settings)
    z = sizes_of(summary, shared.source, settings, 2 * groups, 1, on_device=False, groups=groups)
    steps = z.n // z.m  # of equal batches
    sums = step_sums(z)
    assert {size for size, _ in sums} == {2}
    if name == "all rows":  # only columns of the subsample are in the gradient
        own = shared.prepared.basis.split(0, 2).n_head
        sums = [*sums[:2], *((2, own * z.c * z.itemsize) for _ in sums[2:])]
    else:
        own = shared.prepared.basis.split(0, 2).ids.size
        sums = [*sums[:2], *((2, own * z.c * z.itemsize) for _ in sums[2:])]
    signals = 4 * 8 * (2 * groups - 1) + 8 * (groups - 1)  # at the first batch, and the loss of the epoch
    assert sent == steps * (sum(nbytes for _, nbytes in sums) + gathered_bytes(z)) + signals
    assert z.blocks_bytes >= -(-z.n // groups) * own * z.itemsize or name == "all rows"


def test_a_model_of_a_step_has_the_same_products_for_any_number_of_groups() -> None:
    shared = Fit.of(toy_source(), toy_settings(Landmarks(60), EigenPro()))
    summary = summarise(shared.prepared, shared.settings)
    free = MessageTimes(0.0, 0.0, np.inf)
    sizes = [
        replace(sizes_of(summary, shared.source, shared.settings, 8, 1, on_device=False, groups=groups), m=64, d=0, q=0)
        for groups in (1, 2, 8)
    ]
    times = [step_seconds(z, StepRates(1e-8, 0.0, free)) for z in sizes]
    np.testing.assert_allclose(times, 64 * 60 / 8 * 1e-8)


@pytest.mark.repeated  # calibrates
def test_the_plan_of_local_workers_shows_groups(capsys: pytest.CaptureFixture[str]) -> None:
    settings = replace(toy_settings(Landmarks(60), EigenPro()), groups=2, memory_budget=4000 * MB)
    found = _here(4, toy_source(), settings)
    assert found.plans is not None
    assert found.plans.grid.in_words(4) == "2 groups of 2 ranks, which divide each batch, as requested"
    assert found.plan.sizes is not None
    assert found.plan.sizes.groups == 2

"""The arithmetic of memory: monotone, itemised, and refused in a sentence."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.errors import MemoryBudgetError
from daskkern.monitor.formatting import format_bytes
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.solvers.falkon.costs import FactorCosts
from daskkern.solvers.nystrom_sgd.costs import EigenbasisCosts
from daskkern.training.planning.memory_plan import FitSizes, MemoryPlan, available_memory, plan_memory
from daskkern.training.planning.suggestions import fits, remedies, with_batch, with_landmarks, with_subsample
from tests.support.plans import CENTRES

GB = 10**9
COSTS = {False: ColumnCosts(), True: FactorCosts()}
ALL_ROWS = replace(CENTRES, p=1_000_000, window=1, all_rows=True, exact=False)
NYSTROM = replace(CENTRES, exact=False, costs=EigenbasisCosts(), q=0, s=0, window=1)
MAPPED = replace(CENTRES, exact=False, explicit=True, mapped=True, window=1, q=160)
SMALL = replace(CENTRES, n=5000, p=500, s=400, q=50, m=300, d=10)
every_plan = pytest.mark.parametrize(
    "sizes", [CENTRES, ALL_ROWS, NYSTROM, MAPPED, SMALL], ids=["centres", "all_rows", "nystrom", "mapped", "small"]
)


@every_plan
@settings(max_examples=40, deadline=None)
@given(p=st.integers(1, 200_000), more=st.integers(1, 200_000))
def test_more_centres_never_need_less(sizes: FitSizes, p: int, more: int) -> None:
    few, many = (replace(sizes, p=columns) for columns in (p, p + more))
    assert plan_memory(few, 0).total <= plan_memory(many, 0).total


@every_plan
@pytest.mark.parametrize("name", ["d", "c", "p", "s", "q", "m", "threads", "itemsize", "validation"])
def test_more_of_anything_never_needs_less(sizes: FitSizes, name: str) -> None:
    doubled = replace(sizes, **{name: 2 * getattr(sizes, name) + 1})
    assert plan_memory(doubled, 0).total >= plan_memory(sizes, 0).total


@every_plan
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("by_rows", [False, True])
def test_products_in_float64_take_more_and_less_than_a_fit_in_float64(
    sizes: FitSizes, device: str, by_rows: bool
) -> None:
    sizes = replace(sizes, device=device, costs=FactorCosts() if by_rows else sizes.costs)
    plain, wide, double = (
        plan_memory(each, 0) for each in (sizes, replace(sizes, wide=True), replace(sizes, itemsize=8))
    )
    assert plain.total + plain.device_total <= wide.total + wide.device_total
    if device == "cpu":
        assert wide.total <= double.total


@every_plan
def test_more_ranks_never_need_more_each(sizes: FitSizes) -> None:
    totals = [plan_memory(replace(sizes, ranks=ranks), 0).total for ranks in (1, 2, 4, 8)]
    assert totals == sorted(totals, reverse=True)
    if sizes not in (NYSTROM, MAPPED, SMALL):  # their spectrum, which one worker finds alone, is the most of all
        assert totals[-1] < totals[0]


@every_plan
def test_the_total_is_the_sum_of_the_items_and_none_is_negative(sizes: FitSizes) -> None:
    plan = plan_memory(sizes, 4 * GB)
    assert plan.total == sum(size for _, size in plan.items)
    assert all(size >= 0 for _, size in plan.items)
    assert len({name for name, _ in plan.items}) == len(plan.items)


def test_a_factor_of_the_centres_is_counted() -> None:
    exact = dict(plan_memory(CENTRES, 0).items)["projection factor"]
    assert exact >= CENTRES.p**2 * 4 // (2 * CENTRES.ranks)
    assert "projection factor" not in dict(plan_memory(replace(CENTRES, exact=False), 0).items)
    assert "eigenfeatures M" in dict(plan_memory(NYSTROM, 0).items)
    assert dict(plan_memory(replace(CENTRES, window=1), 0).items)["temporary centres"] == 0


@every_plan
@pytest.mark.parametrize("budget", [0, GB, 8 * GB, 200 * GB])
def test_what_is_kept_fits_in_what_is_left(sizes: FitSizes, budget: int) -> None:
    plan = plan_memory(sizes, budget)
    assert 0 <= plan.kept <= plan.kept_wanted
    if plan.kept:
        assert plan.total + plan.kept <= budget


def test_a_plan_within_its_budget_passes_and_one_byte_less_is_refused() -> None:
    needed = plan_memory(CENTRES, 0).total
    plan_memory(CENTRES, needed).check()
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_memory(CENTRES, needed - 1).check()
    sentence = str(refusal.value)
    assert f"one rank would need {format_bytes(needed)}, but its budget is {format_bytes(needed - 1)}" in sentence
    assert [f"({i})" in sentence for i in (1, 2, 3, 4)] == [True, True, True, False]
    largest = sorted(plan_memory(CENTRES, 0).items, key=lambda item: -item[1])
    named = sentence.split("largest: ")[1]
    assert [named.find(name) for name, _ in largest[:3]] == sorted(named.find(name) for name, _ in largest[:3])
    assert all(name in named for name, _ in largest[:3])
    assert isinstance(refusal.value, MemoryError)


@every_plan
@pytest.mark.parametrize("share", [0.6, 0.8, 0.95])
def test_remedies_are_three_ways_that_were_checked(sizes: FitSizes, share: float) -> None:
    budget = int(share * plan_memory(sizes, 0).total)
    found = remedies(sizes, budget, 0)
    assert len(set(found)) == len(found) <= 3
    for remedy in found:
        number = int((re.findall(r"\d+", remedy) or ["0"])[0])
        changed = {
            "batch_size": lambda n: with_batch(sizes, n),
            "workers": lambda n: replace(sizes, ranks=n),
            "landmarks": lambda n: with_landmarks(sizes, n),
            "subsample": lambda n: with_subsample(sizes, n),
            "projection": lambda n: replace(sizes, exact=False),
        }
        word = next(word for word in changed if word in remedy)
        if "both" in remedy:
            continue
        assert fits(changed[word](number), budget, 0), remedy
        if word in ("batch_size", "subsample"):
            assert not fits(changed[word](number + 1), budget, 0), remedy
        if word == "workers":
            assert not fits(changed[word](number - 1), budget, 0), remedy


def test_a_budget_below_the_interpreter_leaves_one_remedy_which_is_more_memory() -> None:
    assert remedies(CENTRES, 1_000_000, 0) == ()
    with pytest.raises(MemoryBudgetError, match=r"this would do: \(1\) a memory limit of \d+ MB for each rank$"):
        plan_memory(replace(CENTRES, ranks=1), 1_000_000).check()


def test_double_precision_and_validation_rows_may_be_given_up() -> None:
    double = replace(CENTRES, itemsize=8, d=2000, m=1, p=90, s=72, q=10, validation=20_000, window=1, exact=False)
    needed = plan_memory(double, 0).total
    sentence = "; ".join(remedies(double, needed - 100_000_000, 0))
    assert "float32 instead of float64" in sentence
    assert "no early stopping, which holds 20000 rows" in sentence


def test_on_a_gpu_the_device_has_a_plan_and_a_budget_of_its_own() -> None:
    gpu = replace(CENTRES, device="gpu")
    host, device = plan_memory(CENTRES, 0), plan_memory(gpu, 8 * GB, 8 * GB)
    assert device.device_items
    assert not host.device_items
    on_device = dict(device.device_items)
    assert {"projection factor", "one batch", "temporary centres", "coefficients"} <= set(on_device)
    assert "rows read ahead" in dict(device.items)
    assert on_device["tiles"] >= gpu.m * gpu.own * 4  # a GPU works on whole blocks
    assert device.total <= host.total
    device.check()
    with pytest.raises(MemoryBudgetError, match="on its device, but its budget is 1 GB"):
        replace(device, device_items=(("tiles", 2 * GB),), device_budget=GB).check()
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_memory(gpu, 8 * GB, plan_memory(gpu, 8 * GB, 1).device_total // 2).check()
    assert "on its device" in str(refusal.value)
    assert any(way in str(refusal.value) for way in ("device 'cpu'", "batch_size", "solver.projection"))


@pytest.mark.parametrize("by_rows", [False, True])
def test_rows_go_to_a_gpu_through_two_buffers_and_lie_there_twice(by_rows: bool) -> None:
    gpu = replace(CENTRES, device="gpu", costs=COSTS[by_rows], ranks=1)
    wide = replace(gpu, d=gpu.d + 100)
    more = 100 * gpu.m * gpu.itemsize
    (before, on_device), (after, on_wide) = ((dict(p.items), dict(p.device_items)) for p in (_plan(gpu), _plan(wide)))
    assert after["pinned buffers"] - before["pinned buffers"] == 2 * more
    assert on_wide["one batch"] - on_device["one batch"] >= 2 * more


def _plan(sizes: FitSizes) -> MemoryPlan:
    return plan_memory(sizes, 100 * GB, 100 * GB)


def test_blocks_on_a_gpu_are_kept_in_its_own_memory() -> None:
    gpu = replace(SMALL, device="gpu", n=100_000, d=400)
    assert plan_memory(gpu, 2 * GB, 2 * GB).kept == gpu.blocks_bytes
    assert plan_memory(gpu, 100 * GB, plan_memory(gpu, 0, GB).device_total).kept == 0


def test_blocks_are_kept_where_it_was_asked() -> None:
    wanted = CENTRES.blocks_bytes
    assert plan_memory(CENTRES, 400 * GB).kept == 0  # more than a fit takes by itself
    assert plan_memory(CENTRES, 400 * GB, keep="memory").kept == wanted
    assert plan_memory(SMALL, 4 * GB).kept == SMALL.blocks_bytes
    assert plan_memory(SMALL, 4 * GB, keep="never").kept == plan_memory(SMALL, 4 * GB, keep="disk").kept == 0
    with pytest.raises(MemoryBudgetError, match="got keep_blocks='memory', but"):
        plan_memory(CENTRES, 4 * GB, keep="memory").check()
    moved = plan_memory(SMALL, 4 * GB, keep="disk").on_disk()
    assert moved.disk == SMALL.blocks_bytes
    assert moved.total == plan_memory(SMALL, 4 * GB).total + 3 * SMALL.m * SMALL.own * 4


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (3.2e9, "3.2 GB"), (4e12, "4 TB")],
)
def test_bytes_are_written_in_powers_of_a_thousand(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_ranks_of_one_machine_share_what_is_free() -> None:
    alone, shared = available_memory(), available_memory(1000)
    assert 0 < shared < alone / 100

"""Plans of ranks on different workers: columns within each memory, in proportion to speed; decisions in common."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.basis import AllRows, Landmarks
from daskkern.data.rows.sweep import SweepPlan
from daskkern.errors import MemoryBudgetError
from daskkern.linalg import column_blocks
from daskkern.losses import Squared
from daskkern.solvers import Direct, EigenPro, Falkon
from daskkern.solvers.costs.primitives import factor_bytes
from daskkern.training.planning.columns_of_workers import Divider
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.planner import upper_bound_summary
from daskkern.training.planning.rank_plans import RankPlans, in_common, with_blocks_of_all
from daskkern.training.planning.resources import WorkerResources, is_mixed
from daskkern.training.planning.worker_resources import check_resources
from daskkern.training.run.settings import FitSettings
from tests.support.plans import CENTRES, planned_settings, unread_source

MB = 1_000_000
SOURCE = unread_source(30_000, 50)
SETTINGS = planned_settings(Landmarks(12_000), EigenPro(subsample=500), batch_size=100, keep_blocks="never")


def _workers(*budgets: int, threads: tuple[int, ...] = ()) -> list[WorkerResources]:
    threads = threads or (1,) * len(budgets)
    each = enumerate(zip(budgets, threads, strict=True))
    return [WorkerResources(k, MB * b, None, 0, f"{k} threads", str(rank)) for rank, (b, k) in each]


def _plans(settings: FitSettings, workers: list[WorkerResources], *speeds: float) -> RankPlans:
    return Divider(upper_bound_summary(SOURCE, settings), SOURCE, settings, workers, speeds).plans()


def _columns(plans: RankPlans, p: int = 12_000, s: int = 500) -> list[int]:
    n = len(plans.shares)
    return [column_blocks(p, rank, n, s, plans.shares).columns().size for rank in range(n)]


def test_a_small_worker_no_longer_limits_a_large_one() -> None:
    settings = replace(SETTINGS, solver=EigenPro(subsample=500, projection="exact"))
    small, large = _workers(560, 8000)
    with pytest.raises(MemoryBudgetError, match="one rank would need"):
        _plans(settings, [small, small]).check()
    plans = _plans(settings, [small, large])
    plans.check()
    columns = _columns(plans)
    assert 0 < columns[0] < 0.3 * sum(columns)
    assert [plan.budget for plan in plans.plans] == [560 * MB, 8000 * MB]
    assert plans.tightest is plans.plans[0]
    sizes = [plan.sizes for plan in plans.plans]
    assert all(made is not None and made.own >= count for made, count in zip(sizes, columns, strict=True))
    assert len({made.exact for made in sizes if made is not None}) == 1, "one way to project on all ranks"


def test_equal_workers_share_equally_and_so_do_those_that_are_about_the_same() -> None:
    for workers in (_workers(4000, 4000), _workers(4000, 3900, 4100)):
        assert not is_mixed(workers)
        assert _plans(SETTINGS, workers).shares == ()
    assert _plans(SETTINGS, _workers(4000, 9000)).shares == (), "each has room for its equal part"


def test_a_fast_worker_has_more_columns() -> None:
    workers = _workers(8000, 8000, 8000, threads=(4, 4, 16))
    columns = _columns(_plans(SETTINGS, workers, 1.0, 1.0, 4.0))
    np.testing.assert_allclose(np.array(columns) / sum(columns), [1 / 6, 1 / 6, 4 / 6], atol=0.05)


def test_virtual_ranks_are_what_is_divided() -> None:
    workers = _workers(8000, 8000, threads=(4, 16))
    plans = _plans(replace(SETTINGS, virtual_shards=8), workers, 1.0, 3.0)
    assert plans.shares == (2, 6)
    assert [plan.sizes.threads for plan in plans.plans if plan.sizes is not None] == [2, 2]
    with pytest.raises(MemoryBudgetError, match="worker 0 has too little memory even for the smallest share"):
        check_resources(SOURCE, replace(SETTINGS, virtual_shards=8), False, _workers(150, 8000))


def test_a_refusal_names_the_workers_without_which_the_others_would_do() -> None:
    def too_small(*budgets: int) -> set[str]:
        with pytest.raises(MemoryBudgetError) as refusal:
            check_resources(SOURCE, SETTINGS, False, _workers(*budgets))
        return set(refusal.value.too_small)

    assert too_small(150, 8000, 8000) == {"0"}
    assert too_small(8000, 150, 200, 8000) == {"1", "2"}
    assert too_small(150, 150) == too_small(150) == too_small(150, 250) == set()
    with pytest.raises(MemoryBudgetError) as refusal:
        check_resources(SOURCE, SETTINGS, False, _workers(150, 8000))
    (sentence,) = refusal.value.too_small.values()
    assert sentence == "worker 0 has too little memory for its part of the fit: it may use 150 MB"
    assert not refusal.value.for_now
    check_resources(SOURCE, SETTINGS, False, _workers(8000))


def test_a_worker_that_has_too_little_memory_at_the_moment_is_told_from_one_that_is_too_small() -> None:
    small, large = _workers(150, 8000)
    for lasting, is_for_now in ((150 << 20, False), (8000 << 20, True)):
        with pytest.raises(MemoryBudgetError) as refusal:
            check_resources(SOURCE, SETTINGS, False, [replace(small, lasting=lasting), large])
        assert set(refusal.value.too_small) == {"0"}
        assert refusal.value.for_now == ({"0"} if is_for_now else set())
        assert refusal.value.too_small["0"].endswith("at the moment") == is_for_now


def test_a_refusal_says_how_much_the_workers_hold_together() -> None:
    settings = replace(SETTINGS, basis=Landmarks(29_000), solver=EigenPro(subsample=500, projection="exact"))
    with pytest.raises(MemoryBudgetError, match=r"hold about \d+ of 29000 columns"):
        check_resources(SOURCE, settings, False, _workers(1100, 1500))


def test_other_ways_of_distribution_stay_as_they_are() -> None:
    workers = _workers(1000, 8000)
    serial = replace(BY_ROWS, solver=Direct(), loss=Squared())
    assert _plans(serial, workers, 1.0, 4.0).shares == ()
    assert _plans(SETTINGS, workers[:1], 1.0).shares == ()


BY_ROWS = planned_settings(Landmarks(500), Falkon(), alpha=1e-3, batch_size=6000, keep_blocks="never")


def test_a_fast_worker_has_more_rows_where_rows_are_distributed() -> None:
    plans = _plans(BY_ROWS, _workers(8000, 8000, 8000, threads=(4, 4, 16)), 1.0, 1.0, 4.0)
    assert plans.shares == (4, 4, 16)
    sizes = [plan.sizes for plan in plans.plans if plan.sizes is not None]
    sweep = SweepPlan(30_000, 4096, 6000)
    counts = sweep.rows_of_ranks(3, plans.shares)
    assert counts == [5000, 5000, 20_000]
    assert all(count <= made.own_rows for count, made in zip(counts, sizes, strict=True))
    pieces = [[sweep.pieces(batch, rank, 3, plans.shares) for batch in range(sweep.n_batches)] for rank in range(3)]
    longest = [max(sum(piece.stop - piece.start for piece in batch) for batch in batches) for batches in pieces]
    assert all(count <= made.own_batch_rows for count, made in zip(longest, sizes, strict=True))
    assert plans.plans[0].total < plans.plans[2].total
    assert len({made.own for made in sizes}) == 1, "all columns are on each, and are returned in equal parts"


def test_a_small_worker_keeps_the_blocks_of_fewer_rows() -> None:
    settings = replace(BY_ROWS, keep_blocks="memory", max_epochs=5)
    even = _plans(settings, _workers(4000, 4000)).tightest
    workers = _workers((even.total + even.kept_wanted // 3) // MB, 4000)
    plans = _plans(settings, workers)
    plans.check()
    assert 0 < plans.shares[0] < plans.shares[1]
    assert all(plan.kept == plan.kept_wanted for plan in plans.plans)
    with pytest.raises(MemoryBudgetError) as refused:
        check_resources(SOURCE, settings, False, _workers(60, 4000))
    assert "columns" not in str(refused.value).rpartition(";")[2]


def test_blocks_are_kept_by_all_ranks_or_by_none() -> None:
    settings = planned_settings(Landmarks(3000), EigenPro(subsample=300), batch_size=100, max_epochs=5)
    plans = _plans(settings, _workers(700, 4000))
    assert plans.shares
    assert all(plan.kept == plan.kept_wanted for plan in plans.plans), (
        "the small one has few columns, and room for them"
    )
    noted = with_blocks_of_all(plans, settings, [0, 0], None)
    assert all(plan.kept == plan.kept_wanted for plan in noted.plans)
    one = replace(plans.plans[0], kept=0)
    assert [plan.kept for plan in in_common([one, plans.plans[1]])] == [0, 0]
    keeping = replace(plans.plans[1], keeps_rows=True)
    assert not any(plan.keeps_rows for plan in in_common([replace(one, keeps_rows=False), keeping]))


def test_all_rows_as_centres_are_divided_as_well() -> None:
    settings = replace(SETTINGS, basis=AllRows())
    plans = _plans(settings, _workers(8000, 8000, threads=(1, 4)), 1.0, 4.0)
    columns = _columns(plans, 30_000, 500)
    assert columns[1] > 3 * columns[0]


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8).filter(any), st.integers(300, 9000))
def test_no_rank_has_more_than_its_plan_counts(shares: list[int], p: int) -> None:
    n, s = len(shares), p // 3
    for rank, share in enumerate(shares):
        sizes = replace(CENTRES, p=p, s=s, ranks=n, share=share / sum(shares))
        layout = column_blocks(p, rank, n, s, tuple(shares))
        own = layout.columns()
        assert own.size <= sizes.own
        assert np.count_nonzero(own < s) <= sizes.own_s
        panels = sum(
            (p - block.start) * (block.stop - block.start) for block in map(layout.blocks.__getitem__, layout.own)
        )
        assert 4 * panels <= factor_bytes(p, n, 4, sizes.share)


@pytest.mark.long
@given(
    st.lists(st.sampled_from([450, 600, 900, 1500, 6000]), min_size=2, max_size=4),
    st.lists(st.sampled_from([1.0, 2.0, 8.0]), min_size=4, max_size=4),
)
def test_each_rank_stays_within_its_memory(budgets: list[int], speeds: list[float]) -> None:
    workers = _workers(*budgets, threads=tuple(int(speed) for speed in speeds[: len(budgets)]))
    plans = _plans(SETTINGS, workers, *speeds[: len(budgets)])
    if plans.shares:
        assert sum(_columns(plans)) == 12_000
        assert all(plan.in_budget for plan in plans.plans)


def test_a_plan_without_differences_is_that_of_every_rank() -> None:
    plan: MemoryPlan = _plans(SETTINGS, _workers(4000, 4000)).tightest
    assert RankPlans(plan).of(3) is plan

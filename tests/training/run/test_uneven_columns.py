"""Ranks with different shares of the columns: the answer of equal shares, with every solver, also after a loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.backend.shares import Shares
from daskkern.basis import AllRows, BasisSpec, Landmarks, LocallyLinear, LocalRows, NystromFeatures, RandomFeatures
from daskkern.data.rows.sweep import SweepPlan
from daskkern.events import Event, StageFinished
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import NYTRO, PCG, SGD, EigenPro, Falkon, LocalRidge, NystromSGD, Solver
from daskkern.training.feeding.stored_features import features_for
from tests.support.fits import Fit, Runs, toy_settings, toy_source

FITS: dict[str, tuple[BasisSpec, Solver[Any], Loss]] = {
    "all rows": (AllRows(), EigenPro(), Logistic()),
    "a factor": (Landmarks(60), EigenPro(window=3), Logistic()),
    "iteration": (Landmarks(60), EigenPro(projection="eigenpro", window=2), Logistic()),
    "features": (RandomFeatures(60), SGD(), Logistic()),
    "mapped features": (NystromFeatures(60), EigenPro(), Logistic()),
    "streamed eigenfeatures": (Landmarks(60), NystromSGD(mode="streamed"), Logistic()),
    "conjugate gradient": (AllRows(), PCG(), Squared()),
    "anchors": (LocallyLinear(12, 3), SGD(), Logistic()),
    "leaves": (LocalRows(20), LocalRidge(), Squared()),
}

BY_ROWS: dict[str, tuple[BasisSpec, Solver[Any], Loss]] = {
    "falkon": (Landmarks(40), Falkon(), Squared()),
    "newton": (Landmarks(40), Falkon(newton_passes=3), Logistic()),
    "nytro": (Landmarks(40), NYTRO(), Squared()),
}


def _coef(results: list[Any]) -> np.ndarray:
    order = np.argsort(np.concatenate([result.ids for result in results]))
    return np.concatenate([result.coef for result in results])[order]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shares", [(1, 7), (5, 0, 3)], ids=str)
@pytest.mark.parametrize("name", FITS)
def test_the_answer_is_that_of_equal_shares(name: str, shares: Shares) -> None:
    shared = Fit.of(toy_source(weighted=True), toy_settings(*FITS[name]))
    results = shared.results(len(shares), shares=shares)
    counts = [result.ids.size for result in results]
    assert sum(counts) == shared.prepared.basis.n_columns
    parts = np.array(shares) / sum(shares)
    assert (np.abs(np.array(counts) / sum(counts) - parts) < 0.25).all()
    even = _coef(shared.results(len(shares)))
    np.testing.assert_allclose(_coef(results), even, rtol=1e-9, atol=1e-10 * np.abs(even).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shares", [(1, 7), (5, 0, 3)], ids=str)
@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_are_divided_where_they_are_distributed(name: str, shares: Shares) -> None:
    shared, events = Fit.of(toy_source(weighted=True), toy_settings(*BY_ROWS[name])), list[Event]()
    found = _coef(shared.results(len(shares), shares=shares, listen=events.append))
    even = _coef(shared.results(len(shares)))
    np.testing.assert_allclose(found, even, rtol=1e-6, atol=1e-8 * np.abs(even).max())
    stages = [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "columns"]
    n_batches = shared.prepared.plan.n_batches
    counts = shared.prepared.plan.rows_of_ranks(len(shares), shares)
    assert np.abs(np.array(counts) - 130 * np.array(shares) / 8).max() <= n_batches
    assert f"distributed to {len(shares)} ranks by memory and speed, {counts[0]}" in stages[0]


@settings(max_examples=40, deadline=None)
@given(
    n_rows=st.integers(1, 500),
    batch=st.integers(1, 500),
    shares=st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any),
)
def test_every_row_of_a_batch_has_one_rank_and_no_piece_is_longer_than_with_equal_shares(
    n_rows: int, batch: int, shares: list[int]
) -> None:
    plan, size = SweepPlan(n_rows, 10, batch), len(shares)
    for index in range(plan.n_batches):
        pieces = [piece for rank in range(size) for piece in plan.pieces(index, rank, size, tuple(shares))]
        even = [piece for rank in range(size) for piece in plan.pieces(index, rank, size)]
        assert [row for piece in pieces for row in range(piece.start, piece.stop)] == [
            row for piece in even for row in range(piece.start, piece.stop)
        ]
        assert max(p.stop - p.start for p in pieces) <= max(p.stop - p.start for p in even) + 1
    counts = np.array(plan.rows_of_ranks(size, tuple(shares)))
    assert (np.abs(counts - n_rows * np.array(shares) / sum(shares)) <= plan.n_batches).all()


def test_stored_eigenfeatures_are_divided_as_well(tmp_path: Path) -> None:
    settings = replace(toy_settings(Landmarks(60), NystromSGD(mode="stored")), scratch=str(tmp_path))
    shared = Fit.of(toy_source(), settings)
    with features_for(shared.source, settings, shared.prepared) as features:
        assert features is not None
        shared = replace(shared, features=features)
        even, uneven = (_coef(shared.results(2, shares=shares)) for shares in ((), (1, 5)))
    np.testing.assert_allclose(uneven, even, rtol=1e-9, atol=1e-10 * np.abs(even).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", [AllRows(), Landmarks(60)], ids=["all_rows", "landmarks"])
def test_virtual_ranks_give_the_same_bits_whoever_runs_them(basis: BasisSpec) -> None:
    settings = replace(toy_settings(basis, EigenPro(), dtype="float32"), virtual_shards=8)
    shared = Fit.of(toy_source(weighted=True), settings)
    alone = _coef(shared.results(1))
    for shares in ((1, 7), (6, 2), (1, 4, 3)):
        np.testing.assert_array_equal(_coef(shared.results(len(shares), shares=shares)), alone)


def test_a_run_goes_on_with_other_shares() -> None:
    shared = Fit.of(toy_source(), toy_settings(Landmarks(60), EigenPro(window=2)))
    whole = shared.scores(shared.results(2))
    runs = Runs(shared)
    runs.run(2, until=4, shares=(1, 7))
    np.testing.assert_allclose(runs.scores(3, shares=(4, 1, 1), lost=(2,)), whole, rtol=1e-8, atol=1e-8)


def test_the_log_says_who_has_what() -> None:
    settings = toy_settings(Landmarks(80), EigenPro(), dtype="float32")
    shared, events = Fit.of(toy_source(), settings), list[Event]()
    results = shared.results(2, listen=events.append, shares=(2, 6))
    counts = [result.ids.size for result in results]
    stages = [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "columns"]
    assert stages[0].startswith(f"columns distributed to 2 ranks by memory and speed, {counts[0]} and {counts[1]}")
    virtual, seen = replace(shared, settings=replace(settings, virtual_shards=8)), list[Event]()
    virtual.results(2, listen=seen.append, shares=(2, 6))
    words = [event.detail for event in seen if isinstance(event, StageFinished) and event.stage == "columns"]
    assert words[0].startswith("columns distributed to 8 virtual ranks, 2 and 6 on each worker by memory and speed")

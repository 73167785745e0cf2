"""Histories: what a fit leaves as a table, in the estimator, in the saved model and read again."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.errors import ModelError
from daskkern.events import (
    BatchFinished,
    CheckpointWritten,
    EpochFinished,
    EpochTimed,
    Event,
    FitFinished,
    FitResumed,
    FitStarted,
    OptimalityMeasured,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersLost,
    silent,
)
from daskkern.monitor.history import EpochRow, History, Incident
from daskkern.monitor.recorder import Recorder

_EVENTS: list[Event] = [
    FitStarted("eigenpro", 1000, 5, 1, 100, 2, 3),
    StageFinished("landmarks", 1.5, "100 points"),
    SpectrumFound(80, (0.5, 0.25), (0.1, 0.1), 32, 64.0, 0.5),
    RankReported(1, "tcp://b", "cpu", 10, 100),
    RankReported(0, "tcp://a", "cpu", 30, 100, 0.5),
    RankReported(0, "tcp://a", "cpu", 20, 100),
    BatchFinished(1, 1, 2, 0.9, 50.0),
    EpochFinished(1, 0.8, 2.0, 0.7, 0.6, 11),
    EpochTimed(1, 2.0, 0.75, 0.2, 0.05, 0.5, 0.6, 0.5, 7, "tree"),
    WorkersLost("worker b was lost", 2),
    EpochFinished(1, 0.8, 3.0, 0.7, 0.6, 12),  # done again
    OptimalityMeasured(1, "duality gap", 0.25, 0.0),
    CheckpointWritten(1, 2, 0.125),
    EpochFinished(2, 0.5, 4.0),
    FitFinished("max_epochs", 2, 9.0),
]


def _recorded() -> History:
    ticks = iter(range(100, 200))
    heard: list[Event] = []
    recorder = Recorder(heard.append, clock=lambda: float(next(ticks)))
    for event in _EVENTS:
        recorder(event)
    assert heard == _EVENTS
    return recorder.history(setup_s=1.5)


def test_a_history_is_a_table_of_epochs_with_single_facts() -> None:
    history = _recorded()
    assert len(history) == 2
    np.testing.assert_array_equal(history["epoch"], [1, 2])
    np.testing.assert_array_equal(history["seconds"], [3.0, 4.0])
    np.testing.assert_array_equal(history["elapsed"], [4.5, 5.5])  # the clock counts 1 for each look at it
    assert history[0].rows_per_second == 50
    assert history[1].rows_per_second == 250  # no batch was heard: rows by seconds
    assert (history[0].computing, history[0].reading, history[0].checkpointing) == (0.375, 0.1, 0.025)
    assert (history[0].waiting, history[0].exchanging) == (0.25, 0.25)
    assert math.isnan(history[1].validation_score)
    assert history.measure == "duality gap"
    assert history[0].optimality == 0.25
    assert [rank.memory_bytes for rank in history.ranks] == [30, 10]
    assert history.spectrum is not None
    assert history.spectrum.eigenvalues == (0.5, 0.25)
    assert [found.elapsed for found in history.incidents] == [3.5]
    assert (history.checkpoints, history.checkpoint_seconds) == (1, 0.125)
    assert history[-1] is history.rows[1]
    assert [row.epoch for row in history[:1]] == [1]
    with pytest.raises(KeyError, match="got 'los' as a column of history; expected one of epoch, loss"):
        history["los"]


def test_a_history_shows_what_was_measured_and_turns_into_a_data_frame() -> None:
    history = _recorded()
    frame = history.to_pandas()
    assert list(frame.index) == [1, 2]
    assert frame.loss.tolist() == [0.8, 0.5]
    assert "History of 2 epochs" in repr(history)
    assert ">0.8</td>" in history._repr_html_()
    plain = History((EpochRow(1, 0.5),))
    assert "optimality" not in repr(plain)
    assert "loss" in repr(plain)


def test_a_history_survives_json() -> None:
    history = _recorded()
    again = History.from_json(json.loads(json.dumps(history.to_json(), allow_nan=False)))
    for name in history.columns:
        np.testing.assert_array_equal(again[name], history[name])
    assert again.spectrum == history.spectrum
    assert again.stages == history.stages
    assert again.incidents == (Incident(3.5, WorkersLost("the gang broke up", 2)),)
    assert replace(again.ranks[0], worker="tcp://a") == history.ranks[0]
    assert again.finished == history.finished


@pytest.mark.parametrize("n", [0, 1, 2000, 2001, 5000])
def test_what_is_saved_of_a_history_is_bounded_and_keeps_both_ends(n: int) -> None:
    rows = History(tuple(EpochRow(epoch, 1.0) for epoch in range(1, n + 1))).to_json()["history"]
    epochs = [row["epoch"] for row in rows]
    assert len(epochs) == min(n, 2000)
    assert epochs == sorted(set(epochs))
    assert n == 0 or (epochs[0], epochs[-1]) == (1, n)


def test_epochs_of_an_earlier_run_and_those_that_were_not_heard_are_in_the_table() -> None:
    recorder = Recorder(silent, [EpochFinished(1, 3.0, 10.0)], clock=lambda: 7.0)
    recorder(FitStarted("eigenpro", 10, 1, 1, 5, 1, 3))
    recorder.complete([EpochFinished(2, 2.0, 5.0), EpochFinished(3, 1.0, 6.0)], "max_epochs", 3)
    history = recorder.history(setup_s=1.0)
    np.testing.assert_array_equal(history["elapsed"], [10.0, 15.0, 21.0])
    np.testing.assert_array_equal(history["loss"], [3.0, 2.0, 1.0])


@pytest.mark.parametrize("begun", [FitStarted("sgd", 10, 1, 1, 5, 2, 3), FitResumed(2, 0, 2)])
def test_ranks_of_a_larger_gang_are_forgotten(begun: Event) -> None:
    recorder = Recorder(silent)
    for rank in range(4):
        recorder(RankReported(rank, f"w{rank}", "cpu", 10 * rank, 100))
    recorder(begun)
    assert [rank.rank for rank in recorder.history(0.0).ranks] == [0, 1]


def test_addresses_hosts_and_folders_are_not_saved() -> None:
    recorder = Recorder(silent)
    recorder(RankReported(0, "node17.secret.org", "cpu", 30, 100))
    places = ("tls://[fe80::1]:5", "'/home/secret/ck'", "(/scratch/secret)", "path=/home/secret", "node17.secret.org")
    for number, place in enumerate((*places, "/home/me/a secret folder", r"C:\secret\ck", "~/secret", "../secret/x")):
        recorder(WorkersLost(f"worker {place}, which had rank 1, was lost", 2))
        recorder(StageFinished("checkpoint", 0.0, f"{place} is not up to date: {place} is full"))
        if place != "node17.secret.org":
            recorder(StageFinished(f"stage {number}", 1.0, f"5 rows/s from {place} and more"))
    recorded = recorder.history(0.0)
    text = json.dumps(recorded.to_json())
    for private in ("secret", "home", "scratch", "fe80", "://"):
        assert private not in text
    again = History.from_json(json.loads(text))
    assert {stage.detail for stage in again.stages} == {"not up to date", "5 rows/s from (left out)"} | {
        "5 rows/s from ((left out)",
        "5 rows/s from path=(left out)",
    }
    assert {found.event for found in again.incidents} == {WorkersLost("the gang broke up (rank 1)", 2)}


def test_models_keep_the_history_of_a_fit_on_a_cluster(client2: Client, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    fitted = KernelRegressor("gaussian:1", basis=Landmarks(40), max_epochs=3, client=client2, device="cpu")
    fitted.fit(X, X[:, 0])
    fitted.save(tmp_path / "m.zarr")
    loaded = daskkern.load(tmp_path / "m.zarr")
    for name in fitted.history_.columns:
        np.testing.assert_array_equal(loaded.history_[name], fitted.history_[name])
    assert loaded.history_.started == fitted.history_.started
    assert loaded.history_.started.size == 2
    assert (loaded.history_["computing"] > 0).all()
    assert (np.diff(loaded.history_["elapsed"]) > 0).all()
    assert loaded.history_["elapsed"][0] > loaded.history_["seconds"][0]
    assert loaded.provenance["data"]["rows"] == 200
    assert "numpy" in loaded.provenance["environment"]["versions"]
    assert str(tmp_path) not in json.dumps(dict(loaded.provenance))


def test_models_of_older_versions_have_epochs_or_nothing_and_damage_is_told() -> None:
    older = {"epoch": 1, "loss": 0.5, "seconds": 2.0, "validation_loss": None, "validation_score": None}
    assert History.from_json({"history": [{**older, "bytes_sent": 0}]})[0].seconds == 2.0
    row = History.from_json({"history": [{**older, "working": 0.75, "waiting": 0.25}]})[0]
    assert (row.computing, row.waiting) == (0.75, 0.25)
    assert len(History.from_json({})) == 0
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = KernelRegressor("gaussian:1", basis=Landmarks(10), max_epochs=1, device="cpu").fit(X, X[:, 0]).model_
    broken = daskkern.models.KernelModel(
        **{name: getattr(model, name) for name in ("kernel", "points", "coef", "loss", "task", "classes")},
        provenance={"history": [{"epoch": "first"}]},
    )
    with pytest.raises(ModelError, match="history that was saved with the model is damaged"):
        _ = broken.history_

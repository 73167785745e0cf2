"""Where the time of epochs went: rows that come slowly, and commits that take long, are told from computing."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from daskkern import Landmarks
from daskkern.cli.output.fit_results import time_breakdown
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.events import PARTS_OF_TIME, EpochTimed, Event
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.monitor.event_text import line_of
from daskkern.solvers import EigenPro, Falkon, Solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.commits import Commit
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings

_CHUNKS, _SLEEP_S = 4, 0.05


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of a few chunks."""
    place = tmp_path_factory.mktemp("shares") / "s"
    X = np.random.default_rng(0).normal(size=(50 * _CHUNKS, 3)).astype(np.float32)
    with StoreWriter(place, n_features=3, task="regression", chunk_rows=50) as writer:
        writer.append(X, X[:, 0])
    return str(place)


def _fitted(store: str, solver: Solver, policy: CheckpointPolicy | None = None) -> tuple[FitResult, list[EpochTimed]]:
    heard: list[Event] = []
    settings = FitSettings(
        Gaussian(1.0), Squared(), Landmarks(20), solver, max_epochs=2, batch_size=20, device="cpu", keep_blocks="never",
        alpha=1e-3,
    )  # fmt: skip
    result = fit(StoreSource.at(store), settings, listener=heard.append, policy=policy)
    return result, [event for event in heard if isinstance(event, EpochTimed)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("solver", [EigenPro(), Falkon()])
def test_slow_rows_are_seen(solver: Solver, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = StoreRows.read

    def slowly(self: StoreRows, *arguments: object) -> object:
        time.sleep(_SLEEP_S)
        return read(self, *arguments)  # type: ignore[arg-type]

    quick = sum(epoch.reading for epoch in _fitted(store, solver)[1])
    monkeypatch.setattr("daskkern.training.planning.memory_plan.KEEP_SHARE", 0.0)
    monkeypatch.setattr("daskkern.training.planning.memory_plan.ROWS_SHARE", 0.0)  # so that each epoch reads
    monkeypatch.setattr(StoreRows, "read", slowly)
    result, times = _fitted(store, solver)
    assert [epoch.epoch for epoch in times] == list(range(1, len(times) + 1))
    for epoch in times:
        assert epoch.reading >= _SLEEP_S  # two threads read ahead
        assert sum(getattr(epoch, part) for part in PARTS_OF_TIME) == pytest.approx(epoch.seconds)
        assert epoch.waiting == epoch.longest_wait == 0
    assert sum(epoch.reading for epoch in times) > quick + _SLEEP_S
    shares = result.history["reading"]
    np.testing.assert_allclose(shares, [epoch.reading / epoch.seconds for epoch in times])
    total = np.sum([result.history[part] for part in PARTS_OF_TIME], axis=0)
    np.testing.assert_allclose(total, 1.0)
    assert re.search(r"time of the epochs: .*[\d.]+% waiting for rows", time_breakdown(times))


def test_slow_commits_are_seen(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_bytes = Commit.to_bytes

    def slowly(self: Commit) -> object:
        time.sleep(_SLEEP_S)
        return to_bytes(self)

    monkeypatch.setattr(Commit, "to_bytes", slowly)
    times = _fitted(store, EigenPro(), CheckpointPolicy(in_memory=True, commit_s=0.0, commit_share=1.0))[1]
    assert times[1].checkpointing >= _SLEEP_S


def test_an_epoch_has_a_line_where_its_time_did_not_go_into_computing() -> None:
    assert line_of(EpochTimed(1, 2.0, 1.9, 0.1, 0.0, 0.0, 0.0, 0.0, 3), 5) is None
    assert line_of(EpochTimed(1, 0.2, 0.1, 0.05, 0.0, 0.025, 0.03, 0.025, 3), 5) is None  # over in a moment
    line = line_of(EpochTimed(1, 2.0, 1.0, 0.5, 0.0, 0.25, 0.3, 0.25, 3), 5)
    assert line is not None
    assert line.strip() == (
        "50.0% computing, 25.0% waiting for rows, 12.5% waiting for slower ranks, 12.5% exchanging sums"
    )

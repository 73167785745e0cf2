"""Steps that a GPU is given as one graph, against the same steps launch by launch."""

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.events import CheckpointWritten, EpochFinished, Event, StageFinished, silent
from daskkern.kernels import Gaussian, Laplacian
from daskkern.kernels.engines.cuda import cublas
from daskkern.kernels.engines.cuda.device import device_of
from daskkern.kernels.engines.cuda.recording import GraphRecorder, current_recorder
from daskkern.losses import Absolute, Loss, Quantile, Squared, SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.solvers.eigenpro import setup
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import launches_counted
from tests.support.gpu.fake_gpu import FakeGpu

N, M, P = 200, 24, 120  # batches of 23 and of 22 rows


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of what was recorded, or given again."""
    found: list[Any] = []

    class Watched(GraphRecorder):
        def run(self, key: Hashable, work: Callable[[], None]) -> None:
            super().run(key, work)
            found.append(key)

    monkeypatch.setattr(setup, "GraphRecorder", Watched)
    return found


def _refused(xp: ModuleType) -> Any:
    raise OSError("libcublas.so.12: cannot open shared object file")


def _fit(
    loss: Loss, solver: EigenPro, *, d: int = 6, weighted: bool = False, far: float = 0.0, **others: Any
) -> tuple[FitResult, list[float]]:
    losses: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, EpochFinished):
            losses.append(event.loss)
        others_listen(event)

    others_listen, policy = others.pop("listener", silent), others.pop("policy", None)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, d)) + far
    y = np.sin(X[:, 0]) if loss.name in ("squared", "absolute", "quantile") else np.digitize(X[:, 0], [-0.5, 0.5])
    task = "regression" if y.dtype.kind == "f" else "classification"
    weight = rng.uniform(0.5, 1.5, N) if weighted else None
    info = SourceInfo(N, d, task, (0, 1, 2) if y.dtype.kind == "i" else None, Scaling(), None, 1, True)
    settings = FitSettings(
        others.pop("kernel", Gaussian(3.0)), loss, Landmarks(P), solver, batch_size=M, device="gpu",
        **{"max_epochs": 5, "keep_blocks": "never", **others},
    )  # fmt: skip
    return fit(ArraySource(X, y, weight, info), settings, listener=listen, policy=policy), losses


CASES: dict[str, tuple[Loss, EigenPro, dict[str, Any]]] = {
    "projection in each step": (SquaredHinge(), EigenPro(window=1), {}),
    "windows": (SquaredHinge(), EigenPro(window=5), {}),
    "penalty": (SquaredHinge(), EigenPro(window=4), {"alpha": 1e-3}),
    "weights": (Squared(), EigenPro(window=3), {"weighted": True, "alpha": 1e-4}),
    "intercepts of classes": (SquaredHinge(), EigenPro(window=2), {"class_intercept": True}),
    "several quantiles": (Quantile((0.2, 0.5, 0.9)), EigenPro(window=2), {}),
    "rows far from 0": (Squared(), EigenPro(window=2), {"d": 70, "far": 3e5, "precision": "float16"}),
    "steps that decay": (Absolute(), EigenPro(window=3), {"alpha": 1e-4}),
    "momentum": (Squared(), EigenPro(window=1, momentum=0.5), {"alpha": 1e-4}),
    "kept blocks": (SquaredHinge(), EigenPro(window=3), {"keep_blocks": "memory"}),
    "kept blocks alone": (SquaredHinge(), EigenPro(window=1), {"keep_blocks": "memory"}),
    "wide rows": (Squared(), EigenPro(window=4), {"d": 70, "kernel": Laplacian(9.0)}),
    "half precision": (Squared(), EigenPro(window=4), {"d": 70, "kernel": Laplacian(9.0), "precision": "float16"}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_recorded_steps_give_the_model_of_plain_ones(
    xp: ModuleType, name: str, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, solver, others = CASES[name]
    recorded, first = _fit(loss, solver, **others)
    assert len(runs) == 5 * -(-N // M) - solver.window  # the first window is not recorded
    runs.clear()
    monkeypatch.setattr(cublas, "cublas_library", _refused)
    plain, second = _fit(loss, solver, **others)
    assert not runs
    scale = np.abs(plain.model.coef).max()
    np.testing.assert_allclose(recorded.model.coef, plain.model.coef, atol=2e-4 * scale)
    assert len(first) == 5
    np.testing.assert_allclose(first, second, rtol=1e-4)


def test_a_fit_that_is_resumed_goes_on_as_it_would_have(xp: ModuleType, runs: list[Any], tmp_path: Path) -> None:
    solver, place = EigenPro(window=2), str(tmp_path / "checkpoint")
    whole, _ = _fit(SquaredHinge(), solver, alpha=1e-3, max_epochs=6)
    policy = CheckpointPolicy(checkpoint=place, checkpoint_s=0.0, commit_s=0.0, commit_share=1.0)
    written: list[Event] = []

    class Stopped(Exception):  # noqa: N818
        pass

    def stop(event: Event) -> None:
        if isinstance(event, CheckpointWritten):
            written.append(event)
        elif isinstance(event, EpochFinished):
            if event.epoch >= 3 and written:
                raise Stopped
            time.sleep(0.1)  # for the thread that writes: epochs take a millisecond

    with pytest.raises(Stopped):
        _fit(SquaredHinge(), solver, alpha=1e-3, max_epochs=6, policy=policy, listener=stop)
    assert runs
    resumed, losses = _fit(
        SquaredHinge(), solver, alpha=1e-3, max_epochs=6, policy=replace(policy, resume=True)
    )  # fmt: skip
    assert 0 < len(losses) < 6
    scale = np.abs(whole.model.coef).max()
    np.testing.assert_allclose(resumed.model.coef, whole.model.coef, atol=2e-4 * scale)


def test_what_is_refused_is_said_when_a_fit_ends(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "cublas_library", _refused)
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "steps":
            notes.append(event.detail)

    _fit(SquaredHinge(), EigenPro(window=1), listener=listen)
    assert notes == ["not recorded as CUDA graphs (OSError: libcublas.so.12: cannot open shared object file)"]


def test_a_recorded_step_takes_few_calls_of_the_host(stand_in: FakeGpu) -> None:
    with stand_in.installed(), launches_counted() as names:
        _fit(SquaredHinge(), EigenPro(window=5, averaging=0.0), max_epochs=6)
        before = len(names)
        _fit(SquaredHinge(), EigenPro(window=5, averaging=0.0), max_epochs=16)
    assert (len(names) - 2 * before) / (10 * -(-N // M)) < 12


def test_what_cannot_be_recorded_leaves_places_as_they_were(xp: ModuleType) -> None:
    recorder = GraphRecorder(xp)
    place = recorder.place("x", (3,), np.float32)
    place.fill(2.0)

    def work() -> None:
        place[...] = place * 3
        if current_recorder() is not None:
            float(place.sum())

    with pytest.raises(RuntimeError, match="capturing"):
        recorder.run("tripled", work)
    assert place.tolist() == [2.0, 2.0, 2.0]
    assert current_recorder() is None


def test_work_is_recorded_once_and_reads_its_places(xp: ModuleType) -> None:
    recorder, calls = GraphRecorder(xp), []
    place = recorder.place("x", (2, 2), np.float32)
    out = recorder.place("out", (2, 2), np.float32)

    def work() -> None:
        calls.append(1)
        factor = recorder.place("factor", (), np.float32)
        device_of(xp).multiply(
            place, place, out, turn_left=False, turn_right=True, precision="float32", scale=0.5
        )  # fmt: skip
        out[...] = -out * factor

    for value in (1.0, 2.0, 3.0):
        recorder.number("factor", value, np.float32)
        place.fill(value)
        recorder.run("product", work)
        assert out.tolist() == [[-(value**3)] * 2] * 2
    assert len(calls) == 4  # compiled, given memory, tried with that, and recorded


def test_what_lasts_is_not_where_recordings_have_their_own(xp: ModuleType) -> None:
    recorder, cached = GraphRecorder(xp), {}
    place, out = (recorder.place(name, (64,), np.float32) for name in ("x", "out"))

    def first() -> None:
        out[...] = (place + 1) * 2

    def second() -> None:
        if "factor" not in cached:
            cached["factor"] = xp.full_like(place, 3.0)
        out[...] = place * cached["factor"]

    for value in (1.0, 2.0):
        place.fill(value)
        recorder.run("first", first)
        assert out.tolist() == [2 * value + 2] * 64
        recorder.run("second", second)
        assert out.tolist() == [3 * value] * 64


def test_memory_is_never_that_of_the_stream_that_is_recorded(stand_in: FakeGpu) -> None:
    with stand_in.installed() as xp:
        taken = []

        def spy(size: int) -> None:
            taken.append((size, xp.cuda.get_current_stream()))

        xp.cuda.set_allocator(spy)
        launching = xp.cuda.Stream()
        with launching:
            recorder = GraphRecorder(xp)
            place, out = (recorder.place(name, (300,), np.float32) for name in ("x", "out"))
            recorder.run("work", lambda: out.__setitem__(..., (place + 1) * 2))
            assert out.tolist() == [2.0] * 300
        assert [size for size, _ in taken][:2] == [1200, 1200]  # where it makes what lasts
        assert len(taken) >= 4
        assert all(stream is launching for _, stream in taken)

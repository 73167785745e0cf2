"""What a GPU worker takes of its GPU at its start: as much as the plan says, of what is free."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import daskkern
from daskkern.backend.devices import Gpu
from daskkern.basis import Landmarks
from daskkern.cli.main import main
from daskkern.cluster.connect import local
from daskkern.cluster.connect.local import Pool
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning import planner as planning
from daskkern.training.planning.planner import device_pool, upper_bound_plan
from daskkern.training.run.settings import FitSettings

GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> str:
    X = np.random.default_rng(0).standard_normal((500, 5))
    np.savez(tmp_path / "d.npz", X=X, y=X[:, 0])
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", task="regression")
    return str(tmp_path / "d.zarr")


def _gpus(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    found = tuple(Gpu("H100", 80 * GIB, each, "570.1") for each in free)
    monkeypatch.setattr(planning, "gpus", lambda: found)


def _settings(landmarks: int) -> FitSettings:
    return FitSettings(Gaussian(2.0), Squared(), Landmarks(landmarks), EigenPro(), max_epochs=2)


def test_the_pool_is_what_the_plan_has_on_the_device(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 70 * GIB, 60 * GIB)
    source = StoreSource.at(store)
    plan = upper_bound_plan(source, _settings(100), 2, 1, 64 * GIB, int(0.8 * 60 * GIB))
    pool = device_pool(source, _settings(100), [0, 1])
    assert pool.initial == int(1.1 * (plan.device_total + plan.kept)) > 0
    assert pool.most == int(0.8 * 60 * GIB)
    assert device_pool(source, _settings(400), [0, 1]).initial > pool.initial


def test_virtual_ranks_of_one_gpu_are_counted_together(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 70 * GIB)
    source, settings = StoreSource.at(store), replace(_settings(400), virtual_shards=3)
    each = upper_bound_plan(source, settings, 3, 1, 64 * GIB, int(0.8 * 70 * GIB) // 3)
    assert device_pool(source, settings, [0]).initial == int(1.1 * 3 * (each.device_total + each.kept))


def test_the_pool_leaves_what_others_have(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = StoreSource.at(store)
    _gpus(monkeypatch, 70 * GIB, 1 << 20, 60 * GIB)
    least = int(0.8 * (1 << 20))
    assert device_pool(source, _settings(400), [0, 1]) == Pool(least, least)
    assert device_pool(source, _settings(400), [0, 2]).most == int(0.8 * 60 * GIB)
    assert device_pool(source, _settings(400), ["GPU-ab12"]) == Pool(least, least)  # which one is not known
    assert device_pool(source, replace(_settings(400), device="cpu"), [0]) == Pool(0, 0)
    _gpus(monkeypatch)
    assert device_pool(source, _settings(400), [0, 1]) == Pool(0, 0)


def test_a_fit_of_the_command_line_asks_for_its_pool(
    store: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    requested: dict[str, Any] = {}

    def started(**given: Any) -> None:
        requested.update(given)
        raise RuntimeError("no device")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=started))
    monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 2))
    monkeypatch.setattr(local, "find_spec", lambda name: object())
    _gpus(monkeypatch, 70 * GIB, 60 * GIB)
    with pytest.raises(SystemExit) as ended:
        main(["fit", store, "--landmarks", "100", "--gpus", "all", "--out", store.replace("d.zarr", "m.zarr")])
    assert ended.value.code
    assert "all GPUs were requested but cannot be used (RuntimeError: no device)" in capfd.readouterr().err
    assert 1 << 20 < requested["rmm_pool_size"] < GIB
    assert requested["rmm_maximum_pool_size"] == int(0.8 * 60 * GIB)
    assert requested["rmm_allocator_external_lib_list"] == ["cupy"]

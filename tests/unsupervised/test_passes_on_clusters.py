"""Row passes shared by two worker processes give what one process gives."""

from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern import KernelDensity, KernelKMeans, KernelPCA, Landmarks, OneClassSVM, SpectralClustering, mmd_test
from daskkern.unsupervised import margin, passes

ROWS = np.concatenate([np.random.default_rng(0).standard_normal((150, 3)) + shift for shift in (-3, 0, 3)])
SETTINGS = {"basis": Landmarks(40), "scale": None}


def _values(estimator: Any, X: Any) -> Any:
    name = next(name for name in ("transform", "score_samples", "predict") if hasattr(estimator, name))
    return getattr(estimator, name)(X)


@pytest.mark.long
@pytest.mark.one_in(5)
@pytest.mark.cluster
@pytest.mark.parametrize(
    "estimator",
    [
        KernelPCA(3, **SETTINGS),
        SpectralClustering(3, **SETTINGS),
        KernelKMeans(3, **SETTINGS),
        OneClassSVM(0.2, **SETTINGS),
        KernelDensity(0.5, **SETTINGS),
        KernelDensity(0.5, scale=None),
    ],
    ids=lambda estimator: type(estimator).__name__ + str(estimator.basis)[:4],
)
def test_workers_share_the_rows_of_arrays_and_of_dask_arrays(
    estimator: Any, client2: Client, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "SHARE", 100)
    expected = _values(estimator.set_params(client=None).fit(ROWS), ROWS)
    on_cluster = estimator.set_params(client=client2)
    for rows in (ROWS, da.from_array(ROWS, chunks=(130, 3))):
        found = _values(on_cluster.fit(rows), ROWS)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    np.savez(tmp_path / "rows.npz", X=ROWS.astype(np.float32), y=np.arange(450) % 3)
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", shuffle=False)
    found = _values(on_cluster.fit(tmp_path / "rows.zarr"), ROWS)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.cluster
def test_workers_share_the_rows_of_both_samples(client2: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARE", 100)
    here = mmd_test(ROWS[:200], ROWS[200:], basis=Landmarks(40))
    there = mmd_test(da.from_array(ROWS[:200], chunks=(70, 3)), ROWS[200:], basis=Landmarks(40), client=client2)
    assert there.p_value == here.p_value
    assert there.statistic == pytest.approx(here.statistic, rel=1e-10)


@pytest.mark.cluster
def test_workers_solve_working_sets_of_all_rows(client2: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SHARE", 100)
    exact = OneClassSVM(0.05, **SETTINGS).fit(ROWS)
    monkeypatch.setattr(margin, "SAMPLE", 150)
    here = OneClassSVM(0.05, **SETTINGS).fit(ROWS)
    there = OneClassSVM(0.05, **SETTINGS, client=client2).fit(da.from_array(ROWS, chunks=(130, 3)))
    np.testing.assert_allclose(here.score_samples(ROWS), exact.score_samples(ROWS), rtol=1e-3)
    np.testing.assert_allclose(there.score_samples(ROWS), exact.score_samples(ROWS), rtol=1e-3)
    for fitted in (exact, here, there):  # which support vectors are below the offset depends on rounding
        assert (fitted.predict(ROWS) == -1).sum() == 22

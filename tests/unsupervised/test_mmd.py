"""The two-sample test: its statistic by definition, its level, its power, and rows of any kind."""

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import daskkern
from daskkern import Landmarks, RandomFeatures, ingest, mmd_test
from daskkern.errors import DaskkernError, DataError
from daskkern.kernels import Gaussian
from daskkern.unsupervised import mmd

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((90, 3)), RNG.standard_normal((60, 3)) + 0.2


def _unbiased(K: np.ndarray, n: int) -> float:
    """Equation 3 of Gretton et al."""
    m = len(K) - n
    x, y = K[:n, :n], K[n:, n:]
    return (x.sum() - np.trace(x)) / (n * (n - 1)) + (y.sum() - np.trace(y)) / (m * (m - 1)) - 2 * K[:n, n:].mean()


def test_the_statistic_and_its_permutations_are_those_of_the_kernel_matrix() -> None:
    pooled = np.concatenate([X, Y])
    K = Gaussian(2.0).block(pooled, pooled)
    result = mmd_test(X, Y, kernel="gaussian:2", n_permutations=400)
    expected = K[:90, :90].mean() + K[90:, 90:].mean() - 2 * K[:90, 90:].mean()
    assert result.statistic == pytest.approx(expected, rel=1e-8)
    assert result.unbiased == pytest.approx(_unbiased(K, 90), rel=1e-7)
    assert (result.n_groups, result.group_rows) == (150, 1)
    v = np.array([RNG.permutation(np.repeat([1 / 90, -1 / 60], [90, 60])) for _ in range(2000)])
    ours, theirs = result.permuted, np.einsum("bi,ij,bj->b", v, K, v)
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=0.05)
    np.testing.assert_allclose(np.quantile(ours, [0.5, 0.9]), np.quantile(theirs, [0.5, 0.9]), rtol=0.1)
    assert result.p_value == (1 + (ours >= result.statistic).sum()) / 401


@pytest.mark.repeated
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "m", "most"), [(40, 25, 2000), (300, 200, 100), (400, 40, 60)])
def test_the_level_is_kept(n: int, m: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 120 tests of samples of one distribution, about as many reject as their level says."""
    monkeypatch.setattr(mmd, "MOST_GROUPS", most)
    rng = np.random.default_rng(n)
    found = [
        mmd_test(
            rng.standard_exponential((n, 2)), rng.standard_exponential((m, 2)), basis=Landmarks(20), n_permutations=59,
            random_state=seed,
        ).p_value
        for seed in range(120)
    ]  # fmt: skip
    for level in (0.05, 0.2, 0.5):
        share, spread = np.mean(np.array(found) <= level), (level * (1 - level) / 120) ** 0.5
        assert abs(share - level) < 3.5 * spread


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", ["auto", Landmarks(50), RandomFeatures(100)], ids=["all", "landmarks", "random"])
def test_other_means_and_spreads_are_found(basis: object) -> None:
    rng = np.random.default_rng(1)
    first = rng.standard_normal((400, 3))
    assert mmd_test(first, rng.standard_normal((300, 3)) + 0.3, basis=basis).p_value == 0.001
    assert mmd_test(first, rng.standard_normal((300, 3)) * 1.5, basis=basis).p_value == 0.001


@pytest.mark.long
def test_groups_of_many_rows_keep_the_power() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal((9000, 2)), rng.standard_normal((4000, 2)) + np.array([0.1, 0])
    result = mmd_test(first, second, basis=Landmarks(60))
    assert (result.group_rows, result.n_groups) == (7, 9000 // 7 + 4000 // 7)
    assert result.p_value < 0.01


def test_stores_and_dask_arrays_give_what_arrays_give(tmp_path: Path) -> None:
    for name, rows in (("x", X), ("y", Y)):
        np.savez(tmp_path / f"{name}.npz", X=rows.astype(np.float32), y=np.zeros(len(rows)) + np.arange(len(rows)) % 2)
        daskkern.ingest([str(tmp_path / f"{name}.npz")], tmp_path / f"{name}.zarr", shuffle=False)
    expected = mmd_test(X, Y)
    stores = mmd_test(tmp_path / "x.zarr", tmp_path / "y.zarr")
    mixed = mmd_test(da.from_array(X, chunks=(40, 3)), Y)
    assert stores.statistic == pytest.approx(expected.statistic, rel=1e-4)
    assert stores.p_value == expected.p_value == mixed.p_value
    assert mixed.statistic == pytest.approx(expected.statistic)


def test_the_same_seed_gives_the_same() -> None:
    np.testing.assert_array_equal(mmd_test(X, Y).permuted, mmd_test(X, Y).permuted)
    assert not np.array_equal(mmd_test(X, Y).permuted, mmd_test(X, Y, random_state=1).permuted)


def test_rows_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 and of 2 features"):
        mmd_test(X, Y[:, :2])
    with pytest.raises(DaskkernError, match="n_permutations=0"):
        mmd_test(X, Y, n_permutations=0)
    with pytest.raises(DaskkernError, match="n_samples=1"):
        mmd_test(X, da.from_array(Y[:1]))
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(90.0))
    daskkern.ingest([str(tmp_path / "x.npz")], tmp_path / "x.zarr", scale="standard")
    with pytest.raises(DataError, match="other scalings"):
        mmd_test(tmp_path / "x.zarr", Y)


def _frames(first: list[str], second: list[str], category: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    made = []
    for texts in (first, second):
        column = pd.Series(texts).astype("category") if category else pd.Series(texts)
        made.append(pd.DataFrame({"c": column, "x": rng.standard_normal(len(texts))}))
    return made[0], made[1]


@pytest.mark.parametrize("category", [False, True])
def test_categories_are_those_of_both_samples(category: bool) -> None:
    kernel = "laplacian_l1:median" if category else "gaussian:median"
    apart = _frames(["red", "green"] * 40, ["cat", "dog"] * 40, category)
    assert mmd_test(*apart, kernel=kernel, n_permutations=99).p_value == 0.01
    alike = _frames(["b"] * 90 + ["c"] * 10, ["b"] * 90 + ["c"] * 9 + ["a"], category)
    assert mmd_test(*alike, kernel=kernel, n_permutations=99).p_value > 0.05
    tables = (pa.Table.from_pandas(frame, preserve_index=False) for frame in alike)
    assert mmd_test(*tables, kernel=kernel, n_permutations=99).p_value > 0.05


def test_frames_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    X, Y = _frames(["a", "b"] * 20, ["b", "c"] * 20, True)
    with pytest.raises(DaskkernError, match="the gaussian kernel has no categories"):
        mmd_test(X, Y)
    with pytest.raises(DaskkernError, match="got column 'x' where the other rows have 'z'"):
        mmd_test(X, Y.rename(columns={"x": "z"}), kernel="laplacian_l1:1")
    with pytest.raises(DaskkernError, match="columns of different kinds"):
        mmd_test(X, Y.assign(x="m"), kernel="laplacian_l1:1")
    for name, frame in (("x", X), ("y", Y)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", target=(), categorical="codes", scale="none")
    with pytest.raises(DaskkernError, match=r"the second with --like and the first"):
        mmd_test(tmp_path / "x.zarr", tmp_path / "y.zarr", kernel="laplacian_l1:1")

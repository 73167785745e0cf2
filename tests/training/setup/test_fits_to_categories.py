"""Fits to codes of categories: those of one-hot features of half the weight, in one process and on three ranks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import daskkern
from daskkern import AllRows, FeatureLearning, KernelRegressor, Landmarks, Linear, LocalRows, RandomFeatures, ingest
from daskkern.arrays import HostArray
from daskkern.cli.main import cli
from daskkern.data.storage.store import open_store
from daskkern.errors import SpecError
from daskkern.kernels import AutoKernel, L1Laplacian, from_spec
from daskkern.model_selection.candidates import first_candidates
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit

CODES = (1, 3)


def _frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    port, plane = rng.integers(0, 12, n), rng.integers(0, 9, n)
    x = rng.standard_normal((n, 2))
    y = np.cos(5.0 * port) + np.sin(2 * x[:, 0]) + 0.05 * rng.standard_normal(n)
    texts = {"port": [f"p{k:02}" for k in port], "plane": [f"q{k}" for k in plane]}
    return pd.DataFrame({"x0": x[:, 0], "port": texts["port"], "x1": x[:, 1], "plane": texts["plane"], "y": y})


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codes")
    _frame(500, 1).to_csv(folder / "train.csv", index=False)
    test = _frame(200, 2)
    test.loc[0, "port"] = "elsewhere"
    test.to_csv(folder / "test.csv", index=False)
    for kind in ("codes", "onehot"):
        ingest(str(folder / "train.csv"), folder / f"{kind}.zarr", target="y", categorical=kind)
    ingest(str(folder / "test.csv"), folder / "test.zarr", like=folder / "codes.zarr")
    return folder


def _known(folder: Path, kind: str) -> str:
    return str(folder / f"{kind}.zarr")


def test_a_fit_to_codes_is_the_fit_to_one_hot_features_of_half_the_weight(stores: Path) -> None:
    codes = KernelRegressor(L1Laplacian(3.0), basis=AllRows(), solver="direct", alpha=1e-3).fit(_known(stores, "codes"))
    d = open_store(_known(stores, "onehot")).info.n_features
    scales = [3.0 if k in (0, 13) else 6.0 for k in range(d)]  # two features of 22 differ, and count half
    hot = KernelRegressor(L1Laplacian(scales), basis=AllRows(), solver="direct", alpha=1e-3).fit(
        _known(stores, "onehot")
    )
    assert codes.model_.kernel == L1Laplacian(3.0, categories=CODES)
    found, expected = (np.asarray(m.predict(_known(stores, k))) for m, k in ((codes, "codes"), (hot, "onehot")))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_the_rows_choose_among_kernels_with_categories_and_tables_are_predicted(stores: Path) -> None:
    model = KernelRegressor("auto", basis=Landmarks(300), alpha=1e-6, solver="falkon").fit(_known(stores, "codes"))
    assert model.model_.kernel.categories == CODES
    assert model.score(str(stores / "test.zarr")) > 0.8
    place = stores / "model.zarr"
    model.save(place)
    light = daskkern.load(place)
    raw = _raw(str(stores / "test.zarr"))
    np.testing.assert_allclose(light.predict(raw), model.predict(raw), rtol=0, atol=1e-4)
    run = CliRunner().invoke(cli, ["score", str(place), str(stores / "test.csv")])
    assert run.exit_code == 0, run.output
    assert "note: column 'port': 1 cell has a category that the training data lack, and counts as" in run.output


def _raw(store: str) -> HostArray:
    found: HostArray = np.asarray(open_store(store).array("X")[:])
    return found


def test_ranks_fit_what_one_process_fits(stores: Path) -> None:
    source = StoreSource.at(_known(stores, "codes"))
    estimator = KernelRegressor("laplacian_l1:median", basis=Landmarks(60), max_epochs=3, device="cpu")
    settings = estimator.fit_settings(source.info.n_rows, "regression")
    raw = _raw(str(stores / "test.zarr"))
    found = [fit(source, replace(settings, virtual_shards=shards)).model for shards in (None, 3)]
    assert found[0].kernel == found[1].kernel
    assert found[0].kernel.categories == CODES
    np.testing.assert_allclose(found[0].predict(raw), found[1].predict(raw), rtol=0, atol=1e-3)


def test_learned_weights_tell_categories_that_matter_from_those_that_do_not(stores: Path) -> None:
    learning = FeatureLearning("diagonal", n_landmarks=300)
    fit = KernelRegressor("laplacian_l1:median", basis=Landmarks(300), learn_features=learning).fit(
        _known(stores, "codes")
    )
    scales = np.asarray(fit.model_.kernel.length_scale)  # type: ignore[attr-defined]
    assert scales.shape == (4,)
    assert 3 * scales[1] < scales[3]
    assert 3 * scales[0] < scales[2]


@pytest.mark.parametrize(("settings", "words"), [
    ({"kernel": "gaussian:median"}, "the gaussian kernel has no categories: ingest with --categorical onehot"),
    ({"basis": RandomFeatures(50)}, "got the basis random features, whose features are numbers, for codes"),
    ({"basis": Linear()}, "got the basis linear, whose features are numbers, for codes; ingest with"),
    ({"basis": LocalRows(50)}, "got the basis local rows, whose features are numbers, for codes"),
    ({"learn_features": "full"}, "got learn_features='full' for codes, which have no directions; choose 'diagonal'"),
    ({"basis": Landmarks(20, "k_means")}, "got k_means, whose landmarks are means of rows, for codes"),
])  # fmt: skip
def test_what_needs_numbers_says_so(stores: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        KernelRegressor(**settings).fit(_known(stores, "codes"))


def test_codes_in_arrays_are_named_by_the_kernel_and_not_scaled(stores: Path) -> None:
    rows = _raw(_known(stores, "codes")).astype(np.float64)
    y = np.asarray(open_store(_known(stores, "codes")).array("y")[:]).ravel()
    fit = KernelRegressor(L1Laplacian("median", categories=CODES), basis=AllRows(), solver="direct", alpha=1e-4).fit(
        rows, y
    )
    scaling = fit.model_.scaling
    assert [scaling.shift[k] for k in CODES] == [0, 0]
    assert [scaling.scale[k] for k in CODES] == [1, 1]
    assert scaling.scale[0] != 1
    assert fit.score(rows, y) > 0.9


def test_candidates_of_a_search_are_those_with_categories(stores: Path) -> None:
    info = StoreSource.at(_known(stores, "codes")).info
    rows = _raw(_known(stores, "codes"))
    found = first_candidates(("affine",), rows, info.categories)
    assert {one.kernel for one in found} == {"laplacian_l1", "additive_laplacian"}
    assert all(one.resolved(rows).categories == CODES for one in found)
    auto = AutoKernel(categories=CODES)
    assert from_spec(dict(auto.spec())) == auto
    plain, heavier, additive = auto.candidates(rows)
    assert [plain.name, heavier.name, additive.name] == ["laplacian_l1", "laplacian_l1", "additive_laplacian"]
    scales = np.asarray(heavier.spec()["length_scale"])
    np.testing.assert_allclose(scales, scales[0] / np.array([1, 4, 1, 4]))
    assert plain.spec()["length_scale"] == auto.resolve(rows).spec()["length_scale"]
    assert auto.slowest(rows) == auto.with_metric(rows)[0] == auto.resolve(rows)

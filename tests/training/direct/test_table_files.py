"""Tables in files with choices of their own: the same fit as from the rows, columns and encodings that they choose."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks, TableFiles
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.direct.registry import RowRoles, direct_rows
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

EXACT = {"solver": "direct", "basis": AllRows(), "alpha": 1e-3, "calibrate": False, "kernel": "gaussian:3"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "day": np.repeat([1, 2, 3], 30)})
    made["kind"] = rng.choice(["red", "blue"], 90)
    made["gap"] = made.b.where(made.index % 7 != 0)
    made["y"] = np.sin(made.a) + made.b
    return made


@pytest.fixture(scope="module")
def lake(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for day, part in frame.groupby("day"):
        (folder / f"day={day}").mkdir()
        part.drop(columns="day").to_parquet(folder / f"day={day}" / "part.parquet", index=False)
    return folder


def test_only_rows_that_pass_and_columns_that_are_named(lake: Path, frame: pd.DataFrame) -> None:
    chosen = TableFiles(lake, columns=["a", "b"], where="day < 3")
    model = KernelRegressor(**EXACT, device="cpu").fit(chosen, target="y")
    assert model.model_.feature_names == ("a", "b")
    with pytest.raises(DataError, match="give the path or a data frame"):
        model.predict(chosen)
    assert model.model_.coef.shape[0] == 60
    rows = frame[frame.day < 3]
    plain = KernelRegressor(**EXACT, device="cpu").fit(rows[["a", "b"]].to_numpy(np.float32), rows.y)
    X = frame[["a", "b"]].to_numpy(np.float32)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=1e-3, atol=1e-3)


def test_encodings_are_those_that_were_chosen(lake: Path) -> None:
    chosen = TableFiles(lake, ("kind", "gap"), categorical="codes", missing="constant")
    encoding = (
        KernelRegressor(**{**EXACT, "kernel": "laplacian_l1:3"}, device="cpu").fit(chosen, target="y").model_.encoding
    )
    assert encoding is not None
    assert {column.name: column.kind for column in encoding}["kind"] == "code"
    with pytest.raises(DataError, match="gap"):
        KernelRegressor(device="cpu").fit(TableFiles(lake, "gap", missing="refuse"), target="y")


def test_validation_rows_have_a_filter_of_their_own(lake: Path) -> None:
    settings = {"basis": Landmarks(20), "max_epochs": 2, "calibrate": False, "device": "cpu", "early_stopping": True}
    model = KernelClassifier("gaussian:3", **settings)
    model.fit(TableFiles(lake, ("a", "b"), "day < 3"), target="kind", validation=TableFiles(lake, where="day = 3"))
    assert model.model_.classes == ("blue", "red")
    assert not np.isnan(model.history_["validation_score"]).any()


def test_sources_of_fits_take_them(lake: Path) -> None:
    source, _ = direct_rows(TableFiles(lake, ("a",), "day = 2"), RowRoles(target=("y",)))
    assert (source.info.n_rows, source.info.n_features) == (30, 1)
    settings = FitSettings(Gaussian(1.0), Squared(), Landmarks(5), EigenPro(), max_epochs=1, device="cpu")
    assert fit(source, settings).model.n_features == 1


def test_wrong_choices_are_one_sentence(lake: Path) -> None:
    with pytest.raises(DataError, match="give different names"):
        TableFiles(lake, ("a", "a"))
    with pytest.raises(SpecError, match="got missing 'never'; choose one of"):
        TableFiles(lake, missing="never")
    with pytest.raises(DataError, match="is the target"):
        KernelRegressor().fit(TableFiles(lake))
    with pytest.raises(DataError, match="'c'"):
        KernelRegressor().fit(TableFiles(lake, columns="c"), target="y")
    assert repr(TableFiles("s3://me:secret@b/lake", where="day = 1")) == "TableFiles('s3://b/lake', where='day = 1')"

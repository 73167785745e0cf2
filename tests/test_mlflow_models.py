"""Models of MLflow: saved, logged, loaded and served as what was fitted."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import daskkern.mlflow
from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.errors import ModelError

pytestmark = [
    pytest.mark.usefixtures("mlflow"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of MLflow and what it imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def mlflow() -> ModuleType:
    """MLflow, which takes seconds to import."""
    wanted = "is not installed; run: pip install 'daskkern[mlflow]'"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("mlflow.pyfunc", reason=f"MLflow {wanted}")
        found: ModuleType = pytest.importorskip("mlflow", reason=f"MLflow {wanted}")
    return found


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(80, 3))
    return X, X[:, 0] - X[:, 1]


@pytest.fixture(scope="module")
def fitted(rows: tuple[np.ndarray, np.ndarray]) -> KernelClassifier:
    X, y = rows
    labels = np.where(y > 0, "up", "down")
    return KernelClassifier("gaussian:2", basis=Landmarks(20), loss="logistic", max_epochs=2).fit(X, labels)


@pytest.mark.long
def test_a_logged_model_is_loaded_and_served(
    mlflow: ModuleType,
    fitted: KernelClassifier,
    rows: tuple[np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    X, _ = rows
    with mlflow.start_run():
        info = daskkern.mlflow.log_model(fitted, "model", metadata={"team": "a"})
    loaded = daskkern.mlflow.load_model(info.model_uri)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    served = mlflow.pyfunc.load_model(info.model_uri)
    assert served.predict(X).tolist() == fitted.predict(X).tolist()
    assert served.metadata.metadata == {"team": "a"}


@pytest.mark.long
def test_a_saved_folder_has_no_pickle_and_all_outputs(
    fitted: KernelClassifier, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, _ = rows
    daskkern.mlflow.save_model(fitted, tmp_path / "m")
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"MLmodel", "model.zarr", "requirements.txt", "python_env.yaml"}
    assert (tmp_path / "m" / "requirements.txt").read_text() == f"daskkern=={daskkern.__version__}\n"
    served = daskkern.mlflow._load_pyfunc(str(tmp_path / "m" / "model.zarr"))
    np.testing.assert_allclose(served.predict(X, {"output": "probabilities"}), fitted.predict_proba(X))
    np.testing.assert_allclose(served.predict(X, {"output": "scores"}), fitted.decision_function(X))
    with pytest.raises(ModelError, match="trained on arrays without names of columns"):
        served.predict(X, {"output": "table"})
    named = daskkern.mlflow.PythonFunction(replace(fitted.model_, feature_names=("a", "b", "c")))
    frame = named.predict(pd.DataFrame(X, columns=["a", "b", "c"]), {"output": "table"})
    assert list(frame.columns) == ["prediction", "probability_down", "probability_up"]
    assert frame["prediction"].tolist() == fitted.predict(X).tolist()
    with pytest.raises(ModelError, match="got output 'labels'; choose one of predictions"):
        served.predict(X, {"output": "labels"})
    with pytest.raises(ModelError, match="exists and is not empty"):
        daskkern.mlflow.save_model(fitted, tmp_path / "m")


def test_columns_of_tables_are_encoded_and_found_by_name(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = rows
    model = KernelRegressor("gaussian:2", basis=Landmarks(20), max_epochs=1).fit(X, y).model_
    encoding = (ColumnEncoding("age"), ColumnEncoding("job", "onehot", ("baker", "smith")))
    named = replace(model, encoding=encoding, feature_names=("age", "job=baker", "job=smith"))
    served = daskkern.mlflow.PythonFunction(named)
    table = pd.DataFrame({"job": ["smith", "baker"], "age": [0.5, 1.5]})
    expected = named.predict(np.array([[0.5, 0, 1], [1.5, 1, 0]]))
    np.testing.assert_allclose(served.predict(table), expected, rtol=1e-6)
    plain = daskkern.mlflow.PythonFunction(replace(model, feature_names=("a", "b", "c")))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])[["c", "a", "b"]]
    np.testing.assert_allclose(plain.predict(frame), model.predict(X))


def test_what_is_no_model_is_refused(mlflow: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="got KernelClassifier; expected a model or a fitted estimator"):
        daskkern.mlflow.save_model(KernelClassifier(), tmp_path / "m")  # type: ignore[arg-type]
    other = mlflow.models.Model()
    other.add_flavor("sklearn")
    (tmp_path / "o").mkdir()
    other.save(str(tmp_path / "o" / "MLmodel"))
    with pytest.raises(ModelError, match="with the flavors sklearn; expected the flavor daskkern"):
        daskkern.mlflow.load_model(str(tmp_path / "o"))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ModelError, match=r"pip install 'daskkern\[mlflow\]'"):
        daskkern.mlflow.save_model(KernelClassifier(), tmp_path / "m")  # type: ignore[arg-type]

"""Saved models: what comes back, who can read them, and what is refused."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_diabetes, load_digits

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.errors import ModelError

_LIGHT = """
import importlib.abc, json, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"dask", "distributed", "sklearn", "bokeh", "scipy", "pyarrow", "rich", "click"}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
import numpy as np
import daskkern
model = daskkern.load(sys.argv[1])
X = np.load(sys.argv[2])
print(json.dumps([model.predict(X).tolist(), model.decision_function(X).tolist(), model.predict_proba(X).tolist()]))
"""


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, np.array([f"digit {label}" for label in y])


@pytest.fixture(scope="module")
def fitted(digits):
    X, y = digits
    return KernelClassifier("gaussian:median", loss="logistic", basis=Landmarks(100), max_epochs=2).fit(X, y)


@pytest.fixture
def saved(fitted, tmp_path):
    """The model, and a file of it that the test may damage."""
    fitted.save(tmp_path / "model.zarr")
    return fitted, tmp_path / "model.zarr"


def test_a_loaded_model_predicts_the_same(digits, saved):
    X, _ = digits
    model, path = saved
    loaded = daskkern.load(path)
    assert (loaded.predict(X) == model.predict(X)).all()
    assert (loaded.decision_function(X) == model.decision_function(X)).all()
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert loaded.provenance["settings"]["loss"] == "logistic"


def test_a_pickled_model_predicts_the_same_and_does_not_carry_what_is_made_anew(digits, saved):
    X, _ = digits
    model, path = saved
    for fitted in (model.model_, daskkern.load(path)):
        data = pickle.dumps(fitted)
        assert len(data) < 1.2 * fitted.nbytes + 20_000
        again = pickle.loads(data)
        np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_a_predictor_needs_only_numpy_and_zarr(digits, saved, tmp_path):
    X, _ = digits
    model, path = saved
    np.save(tmp_path / "X.npy", X[:20])
    run = subprocess.run(
        [sys.executable, "-c", _LIGHT, str(path), str(tmp_path / "X.npy")], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    labels, scores, probabilities = json.loads(run.stdout)
    assert labels == model.predict(X[:20]).tolist()
    np.testing.assert_allclose(scores, model.decision_function(X[:20]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probabilities, model.predict_proba(X[:20]), rtol=1e-5, atol=1e-6)


def test_a_regression_model_keeps_the_units_of_its_targets(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    model = KernelRegressor("gaussian:median", basis=Landmarks(200), max_epochs=10).fit(X, np.stack([y, 1000 + y], 1))
    model.save(tmp_path / "model.zarr")
    np.testing.assert_allclose(daskkern.load(tmp_path / "model.zarr").predict(X), model.predict(X))


def test_saving_again_replaces_the_model_and_leaves_nothing_else(saved):
    model, path = saved
    model.save(path)
    assert [item.name for item in path.parent.iterdir()] == ["model.zarr"]


def test_saving_never_replaces_anything_else(saved, tmp_path):
    model, _ = saved
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("precious")
    with pytest.raises(Exception, match="not overwritten"):
        model.save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "precious"


def _attributes(path, **changes):
    zarr.open_group(path, mode="r+").update_attributes(changes)


def _remove_chunk(path):
    next(item for item in (path / "coef" / "c").rglob("*") if item.is_file()).unlink()


def _poison(path):
    zarr.open_group(path, mode="r+")["coef"][0, 0] = np.nan


def _flip(path):
    chunk = next(item for item in (path / "points" / "c").rglob("*") if item.is_file())
    content = bytearray(chunk.read_bytes())
    content[40] ^= 1
    chunk.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: _attributes(path, version=99), "version|newer"),
        (lambda path: _attributes(path, format="daskkern-store"), "daskkern-model|no daskkern"),
        (lambda path: _attributes(path, complete=False), "half|complete|whole"),
        (lambda path: _attributes(path, kernel={"name": "gaussian", "length_scale": -1}), "length_scale"),
        (lambda path: _attributes(path, kernel={"name": "os.system"}), "unknown"),
        (lambda path: _attributes(path, kernel=7), "damaged"),
        (lambda path: _attributes(path, loss="mystery"), "mystery"),
        (lambda path: _attributes(path, classes={"kind": "int", "labels": [1, 2]}), "outputs for 2 classes"),
        (lambda path: _attributes(path, classes={"kind": "int", "labels": [1]}), "outputs for 1 class"),
        (lambda path: _attributes(path, classes={"kind": "int", "labels": []}), "classes"),
        (lambda path: _attributes(path, classes={"kind": "eval", "labels": ["a"]}), "classes"),
        (lambda path: _attributes(path, scaling={"kind": "standard", "shift": [1], "scale": [1]}), "scaling"),
        (lambda path: _attributes(path, scaling={"kind": "auto", "shift": [1], "scale": [1], "bend": [-1]}), "bends"),
        (_remove_chunk, "missing"),
        (_poison, "'coef' is not what was written"),
        (_flip, "'points' is not what was written"),
    ],
)
def test_a_damaged_model_is_refused_in_one_sentence(saved, damage, words):
    _, path = saved
    damage(path)
    with pytest.raises(ModelError, match=words) as error:
        daskkern.load(path)
    assert "\n" not in str(error.value)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no model at"):
        daskkern.load(tmp_path / "nothing.zarr")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelError):
        daskkern.load(tmp_path / "text")


def test_a_model_without_checksums_opens_unless_it_is_not_finite(saved):
    model, path = saved
    group = zarr.open_group(path, mode="r+")
    for name in ("points", "coef"):
        group[name].attrs.clear()
    np.testing.assert_array_equal(daskkern.load(path).coef, model.model_.coef)
    group["coef"][0, 0] = np.nan
    with pytest.raises(ModelError, match="NaN"):
        daskkern.load(path)

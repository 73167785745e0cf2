"""The examples run, in small form, and say what they did."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.datasets import load_digits

from daskkern import KernelClassifier, KernelRegressor, Landmarks, load
from daskkern.kernels import KERNELS
from daskkern.losses import LOSSES
from tests.support.cluster import child_processes, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what an example defines is pickled by its module's name
    spec.loader.exec_module(module)
    return module


def _percent(text: str, before: str) -> float:
    found = re.search(rf"{before}: ([\d.]+)%", text)
    assert found is not None, text
    return float(found[1])


SMALL = {  # what its main is given, and what it must say
    "custom_kernel": (["--landmarks", "100", "--epochs", "2"], r"the same predictions: True"),
    "custom_loss": (["--epochs", "15"], r"expectile 0\.9: [78]\d% of the targets are below the curve"),
    "molecules": (
        ["--rows", "400", "--test-rows", "100", "--epochs", "10"],
        r"generated .* no chemistry: 400 molecules",
    ),
    "sparse_text": (["--documents", "600", "--landmarks", "200", "--epochs", "3"], r"landmarks: csr_array of shape"),
    "covtype_probabilities": (["--rows", "1500", "--landmarks", "200", "--epochs", "3"], r"log loss: [01]\.\d+"),
    "hyper_parameters": (["--landmarks", "50", "--epochs", "1", "--candidates", "2"], r"16 models in"),
    "compare_systems": (["--systems", "falkon,eigenpro4", "--columns", "100"], r"eigenpro4 +error +[0-9.]+%"),
    "climate_cube": (
        ["--steps", "20", "--grid", "12", "18", "--levels", "2", "--landmarks", "40", "--limit", "4GB"],
        r"RMSE [0-4]\.\d+ degC on later time steps, where the spread is 1\d\.\d+ degC\npeak memory",
    ),
    "resuming": (
        ["--rows", "1000", "--epochs", "5", "--after", "2"],
        r"ended in epoch 3 of 5: interrupted\nresumed in epoch 3 after 0 batches\nended: 5 [\s\S]* interrupted: True",
    ),
}


@pytest.mark.long
@pytest.mark.one_in(11)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SMALL)
def test_in_small(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (KERNELS, LOSSES):
        for key in dict(table):  # what an example registers is taken back after the test
            monkeypatch.setitem(table, key, table[key])
    known = set(KERNELS), set(LOSSES)
    options, said = SMALL[name]
    try:
        _load(name).main(options)
    finally:
        for table, names in zip((KERNELS, LOSSES), known, strict=True):
            for key in set(table) - names:
                del table[key]
    assert re.search(said, capsys.readouterr().out)


def test_every_example_is_in_the_index_and_has_a_test() -> None:
    index = (EXAMPLES / "README.md").read_text()
    tests = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"({path.name})" in index
        assert f'"{path.stem}"' in tests


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(60)
def test_submitting_and_watching_in_small(cluster2: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = _load("submit_and_watch")
    out = str(tmp_path / "model.zarr")
    store = example.generate(tmp_path / "train.zarr", 2000)
    example.main(["--scheduler", cluster2, "--store", store, "--out", out, "--epochs", "2"])
    said = capsys.readouterr().out
    assert "epoch 2: loss" in said
    assert "ended: finished" in said
    assert load(out).points.shape == (500, 20)


def test_molecules_of_tables_become_coulomb_matrices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "qm9_part1.csv").write_text(
        "Elements,XYZ_Ang,InternalEnergy_0K_au\n\"['O','H','H']\",\"[[0.,0.,1.*^-9],[0.,0.,0.96],[0.,0.93,-0.24]]\",-76.4\n"
    )
    _load("qm9_to_npz").main([str(tmp_path), "--out", str(tmp_path / "water.npz")])
    assert "1 molecules" in capsys.readouterr().out
    with np.load(tmp_path / "water.npz") as file:
        charges, positions, energies = file["charges"], file["positions"], file["energies"]
    np.testing.assert_allclose(energies, 627.5095 * (-76.4 + 75.064579 + 2 * 0.500273))
    X = _load("molecules").coulomb(charges, positions)
    bohr = 0.96 / 0.529177
    np.testing.assert_allclose(X[0, :3], [0.5 * 8**2.4, 8 / bohr, 0.5], rtol=1e-5)
    assert (X[0, 6:] == 0).all()
    turned = positions[:, [1, 0, 2, *range(3, 29)]] @ np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    same = _load("molecules").coulomb(charges[:, [1, 0, 2, *range(3, 29)]], turned)
    np.testing.assert_allclose(same, X, rtol=1e-5, atol=1e-6)


def test_the_loss_of_the_example_is_a_loss() -> None:
    loss = _load("custom_loss").Expectile(0.3)
    f, y = np.random.default_rng(0).standard_normal((2, 50, 1))
    change = 1e-6
    slope = (loss.value(f + change, y) - loss.value(f - change, y)) / (2 * change)
    np.testing.assert_allclose(loss.gradient(f, y)[:, 0], slope, atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", ["gaussian:2", "laplacian:3", "cauchy:2"])
def test_numpy_alone_predicts_what_daskkern_does(kernel: str, tmp_path: Path) -> None:
    X, y = (part[:300] for part in load_digits(return_X_y=True))
    served = _load("serve_with_numpy")
    model = KernelClassifier(kernel, basis=Landmarks(50), max_epochs=1).fit(X / 16, y)
    model.save(tmp_path / "classes.zarr")
    np.testing.assert_array_equal(served.Predictor(tmp_path / "classes.zarr").predict(X / 16), model.predict(X / 16))
    number = KernelRegressor(kernel, basis=Landmarks(50), max_epochs=1).fit(X / 16, 100.0 + y)
    number.save(tmp_path / "numbers.zarr")
    np.testing.assert_allclose(
        served.Predictor(tmp_path / "numbers.zarr").predict(X / 16)[:, 0], number.predict(X / 16), rtol=1e-3
    )


def test_numpy_alone_bends_features_with_heavy_tails(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.standard_normal((600, 4)))
    model = KernelRegressor("laplacian:median", basis=Landmarks(50), max_epochs=2).fit(X, np.log(X).sum(axis=1))
    assert any(model.model_.scaling.bend)
    model.save(tmp_path / "bent.zarr")
    served = _load("serve_with_numpy").Predictor(tmp_path / "bent.zarr")
    np.testing.assert_allclose(served.predict(X)[:, 0], model.predict(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(served.scaled(served.raw_points()), served.points, rtol=1e-5, atol=1e-5)


def test_serving_imports_neither_daskkern_nor_zarr() -> None:
    lines = "import sys, serve_with_numpy; print(sorted({'daskkern', 'zarr', 'dask', 'scipy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", lines], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.timeout(60)
def test_quickstart_and_serving_its_model_with_numpy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _load("quickstart").main(["--landmarks", "200", "--epochs", "5", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert _percent(out, "accuracy on the test rows") > 95
    assert "the same predictions: True" in out
    _load("serve_with_numpy").main(["--model", str(tmp_path / "digits-model.zarr")])
    out = capsys.readouterr().out
    assert "200 points of 64 features" in out
    assert re.search(r"first five points: \[\d, \d, \d, \d, \d\]", out)


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(90)
def test_out_of_core_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {process.pid for process in child_processes()}
    small = ["--rows", "10000", "--features", "30", "--landmarks", "300", "--memory-limit", "2GB"]
    _load("out_of_core").main([*small, "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "store: 10,000 rows x 30 features" in out
    assert re.search(r"highest memory of a worker: [1-9][\d,]* MB of 2,000 MB", out)
    assert _percent(out, "accuracy on test.zarr") > 50
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of the workers")


def test_out_of_core_writes_the_store_that_it_says(tmp_path: Path) -> None:
    example = _load("out_of_core")
    size = example.write_store(tmp_path / "rows.zarr", 10_000, 20, seed=1)
    assert size >= 10_000 * 20 * 4

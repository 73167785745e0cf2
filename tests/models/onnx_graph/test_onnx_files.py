"""ONNX files predict as the model does, in a runtime that is not ours, for every kernel, loss and preparation."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import daskkern
from daskkern.calibration import Calibration, ScoreScaling
from daskkern.cli.main import main
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.schema.rank_tables import RankTable
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError, ModelError, SpecError, StoreError
from daskkern.kernels import (
    CallableKernel,
    Coordinate,
    Drawn,
    Fastfood,
    Gaussian,
    Kernel,
    Partitioned,
    PartitionTree,
    TreeAverage,
    parse_kernel,
)
from daskkern.kernels.functions.activations import ACTIVATIONS, Neuron
from daskkern.losses import LOSSES, Logistic, parse_loss
from daskkern.models import KernelModel
from tests.support.kernels.formulas import WITH_FORMULA

onnx = pytest.importorskip("onnx", reason="onnx is not installed; run: pip install 'daskkern[onnx]'")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; run: pip install onnxruntime")

D = 5
METRIC = np.diag([1.0, 2.0, 0.5, 1.0, 3.0]) + 0.2
EXAMPLES = {  # kernels by name: words, where the name alone is not enough
    "gaussian": "gaussian:2",
    "rational_quadratic": "rational_quadratic:1.5,alpha=0.7",
    "laplacian_pq": "laplacian_pq:2,p=1.5,q=0.6",
    "additive_laplacian": "additive_laplacian:1.5,degree=2,n_features=5",
    "polynomial": "polynomial:3,gamma=0.4",
    "arc_cosine": "arc_cosine:2",
    "neural_tangent": "neural_tangent:3",
}
TREE = PartitionTree(np.eye(3, D), np.array([0.0, 0.3, -0.2]), np.array([[1, 2], [-1, -2], [-3, -4]]))
STUMP = PartitionTree(np.ones((1, D)), np.array([0.1]), np.array([[-1, -2]]))
LEAF = PartitionTree(np.zeros((0, D)), np.zeros(0), np.zeros((0, 2)))
OTHERS: dict[str, Kernel] = {
    "scales": Gaussian((1.0, 2.0, 0.5, 1.0, 3.0)),
    "matrix": parse_kernel("laplacian").weighted(METRIC, 2.0),
    "sum": parse_kernel("2*gaussian:2 + 0.5*linear*cauchy:3"),
    "sum in several coordinates": Gaussian((1.0, 2.0, 0.5, 1.0, 3.0)) + parse_kernel("laplacian_l1:2"),
    "categories": parse_kernel("laplacian_l1:1.3").with_categories((1, 4)),
    "scales and categories": daskkern.kernels.L1Laplacian((1.0, 2.0, 0.5, 1.0, 3.0), categories=(1,)),
    "saturated categories": parse_kernel("additive_laplacian:1.5,n_features=5").with_categories((1,)),
    "partitioned": Partitioned(Gaussian(2.0), TREE),
    "one leaf": Partitioned(Gaussian(2.0), LEAF),
    "metric and leaves": Partitioned(parse_kernel("laplacian").weighted(METRIC, 2.0), TREE),
    "trees": TreeAverage(Gaussian(2.0), (TREE, STUMP), D),
    "drawn": Drawn(Gaussian(2.0), 3, 8, D),
    "fastfood": Fastfood(Gaussian(2.0), 40, 3, D),
    "drawn steps": Drawn(parse_kernel("arc_cosine:1"), 3, 8, D),
    **{f"neuron {name}": Neuron(name, 8) for name in ACTIVATIONS},
    "neuron bias": Neuron("tanh", 8, bias=True),
    "linear model": Coordinate(),
}


def kernel_of(name: str) -> Kernel:
    if name in OTHERS:
        return OTHERS[name]
    return parse_kernel(EXAMPLES[name]) if name in EXAMPLES else daskkern.kernels.KERNELS[name].kernel()


def points_of(kernel: Kernel, rows: np.ndarray) -> Any:
    """Return what is stored as the points of a model of this kernel."""
    if isinstance(kernel, Coordinate):
        return sp.csr_matrix(np.vstack([np.eye(D), np.zeros((1, D))]).astype(rows.dtype))
    if isinstance(kernel, Drawn | Fastfood):
        return np.arange(len(rows), dtype=rows.dtype)[:, None]
    if isinstance(kernel, TreeAverage):
        return np.column_stack([rows, np.arange(len(rows)) % kernel.n_trees]).astype(rows.dtype)
    if isinstance(kernel, Neuron) and kernel.bias:
        return np.column_stack([rows, rows[:, 0]])
    return rows


def rows_of(n: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, D)).astype(dtype)
    rows[:, [1, 4]] = np.random.default_rng(seed).integers(0, 4, (n, 2))  # codes, for kernels that have categories
    return rows


def model_of(kernel: Kernel, outputs: int = 1, n: int = 40, dtype: str = "float32", **more: Any) -> KernelModel:
    points = points_of(kernel, rows_of(n, dtype=dtype))
    coef = np.random.default_rng(1).normal(size=(points.shape[0], outputs)).astype(dtype)
    given: dict[str, Any] = {"loss": "squared", "task": "regression", "classes": None, "single_target": outputs == 1}
    return KernelModel(kernel=kernel, points=points, coef=coef, **{**given, **more})


@dataclass(frozen=True)
class Session:
    """A file in onnxruntime."""

    path: Path

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = runtime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))


def outputs_of(model: KernelModel, X: np.ndarray, folder: Path) -> dict[str, Any]:
    model.to_onnx(folder / "m.onnx")
    onnx.checker.check_model(str(folder / "m.onnx"), full_check=True)
    return Session(folder / "m.onnx").run({"X": np.asarray(X, np.float64)})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*WITH_FORMULA, *OTHERS])
def test_every_kernel_has_the_values_of_the_model(name: str, tmp_path: Path) -> None:
    model = model_of(kernel_of(name), 2)
    X = np.vstack([rows_of(30, 5), rows_of(3)])  # the last rows are points: distances of 0
    expected = model.predict(X)
    found = outputs_of(model, X, tmp_path)["prediction"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["gaussian", "arc_cosine", "laplacian_l1", "polynomial"])
def test_float64_models_have_the_digits_of_float64(name: str, tmp_path: Path) -> None:
    model = model_of(kernel_of(name), dtype="float64")
    X = rows_of(20, 5, "float64")
    np.testing.assert_allclose(outputs_of(model, X, tmp_path)["prediction"], model.predict(X), rtol=1e-11, atol=1e-11)


def test_rows_far_from_the_origin_keep_their_digits(tmp_path: Path) -> None:
    model = model_of(kernel_of("laplacian"))
    far = replace(model, points=model.points + np.float32(4000))
    X = rows_of(20, 5) + 4000
    np.testing.assert_allclose(outputs_of(far, X, tmp_path)["prediction"], far.predict(X), rtol=1e-4)


def test_memory_is_that_of_a_piece_of_the_points(tmp_path: Path) -> None:
    model = model_of(kernel_of("gaussian"), n=2000)
    X = rows_of(9, 5)
    np.testing.assert_allclose(outputs_of(model, X, tmp_path)["prediction"], model.predict(X), rtol=1e-4, atol=1e-4)
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert sum(node.op_type == "Scan" for node in graph.node) == 1
    sizes = [dims[-1] for c in graph.initializer if len(dims := c.dims) == 3 and dims[0] > 1]
    assert len(sizes) >= 2
    assert max(sizes) == 512


LOSS_TASKS = [(name, task) for name in LOSSES for task in sorted(parse_loss(name).tasks)]


@pytest.mark.parametrize(("name", "task"), LOSS_TASKS)
def test_every_loss_has_the_predictions_of_the_model(name: str, task: str, tmp_path: Path) -> None:
    loss = parse_loss(name)
    X = rows_of(30, 5)
    if task == "regression":
        shift = np.arange(1.0, 1.0 + loss.heads)
        model = model_of(Gaussian(2.0), loss.heads, loss=loss.spec(), target_scale=shift * 3, target_shift=shift)
        found = outputs_of(model, X, tmp_path)
        assert list(found) == ["prediction"]
        assert found["prediction"].shape == model.predict(X).shape
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-4, atol=1e-4)
        return
    for classes in (("no", "yes"), (3, 5, 9)):
        outputs = 1 if len(classes) == 2 and not loss.joint else len(classes)
        model = model_of(
            Gaussian(2.0), outputs, loss=name, task="classification", classes=classes, target_shift=np.ones(outputs)
        )
        found = outputs_of(model, X, tmp_path)
        assert found["label"].tolist() == model.predict(X).tolist()
        np.testing.assert_allclose(found["scores"], model.scores(X), rtol=1e-4, atol=1e-5)
        assert ("probabilities" in found) == model.has_probabilities
        if model.has_probabilities:
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)


def test_calibrated_probabilities_and_several_labels(tmp_path: Path) -> None:
    X = rows_of(30, 5)
    for task, classes, outputs, offset in (
        ("classification", (True, False), 1, (0.3, -0.3)),
        ("classification", (0.5, 1.5, 2.5), 3, ()),
        ("multilabel", None, 4, ()),
    ):
        calibration = Calibration("held-out", 1, np.ones((1, 1)), ScoreScaling(1.7, offset))
        model = model_of(Gaussian(2.0), outputs, loss="hinge", task=task, classes=classes, calibration=calibration)
        found = outputs_of(model, X, tmp_path)
        assert found["label"].tolist() == model.predict(X).tolist()
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(("loss", "outputs"), [("squared", 1), ("absolute", 3), ("quantile:0.1,0.5,0.9", 3)])
def test_intervals_are_those_of_the_model(loss: str, outputs: int, tmp_path: Path) -> None:
    X, several = rows_of(30, 5), outputs if not loss.startswith("quantile") else 1
    for lift in (0.5, -20.0):  # the second one crosses the quantiles, whose ends then meet
        errors = np.sort(np.random.default_rng(2).random((50, several)), axis=0) + lift
        model = model_of(
            Gaussian(2.0),
            outputs,
            loss=loss,
            target_scale=np.full(outputs, 3.0),
            target_shift=np.arange(1.0, 1.0 + outputs),
            calibration=Calibration("held-out", 50, errors),
        )
        model.to_onnx(tmp_path / "m.onnx", confidence=0.8)
        onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
        found = Session(tmp_path / "m.onnx").run({"X": np.asarray(X, np.float64)})
        assert list(found) == ["prediction", "lower", "upper"]
        expected = model.predict_interval(X, 0.8)
        assert found["lower"].shape == expected[..., 0].shape
        for at, name in enumerate(("lower", "upper")):
            np.testing.assert_allclose(found[name], expected[..., at], rtol=1e-4, atol=1e-4)


def test_intervals_that_a_model_does_not_have_are_refused(tmp_path: Path) -> None:
    labels = model_of(Gaussian(2.0), loss="hinge", task="classification", classes=("a", "b"))
    few = model_of(Gaussian(2.0), calibration=Calibration("held-out", 5, np.ones((5, 1))))
    for model, confidence, error, words in (
        (model_of(Gaussian(2.0)), 0.9, ModelError, "was not calibrated, so it has no intervals"),
        (labels, 0.9, ModelError, "has no intervals; these are for regression"),
        (few, 0.9, DataError, "needs at least 9 calibration rows, but the model has 5"),
        (few, 2.0, SpecError, "give a number between 0 and 1"),
    ):
        with pytest.raises(error, match=words):
            model.to_onnx(tmp_path / "m.onnx", confidence=confidence)
        assert not (tmp_path / "m.onnx").exists()


def test_the_largest_score_of_an_output_counts_and_one_class_is_a_class(tmp_path: Path) -> None:
    X = rows_of(20, 5)
    several = model_of(Gaussian(2.0), 6, loss="hinge", task="classification", classes=("a", "b", "c"), scores_each=2)
    assert outputs_of(several, X, tmp_path)["label"].tolist() == several.predict(X).tolist()
    one = model_of(Gaussian(2.0), 1, loss="hinge", task="classification", classes=("a",))
    assert outputs_of(one, X, tmp_path)["label"].tolist() == ["a"] * 20


SCALINGS = {
    "standard": Scaling("standard", (1.0, 2.0, 0.0, 3.0, 4.0), (2.0, 1.0, 4.0, 0.5, 3.0)),
    "robust": Scaling("robust", (1.0,) * D, (2.0,) * D, (0.0, 1.5, 0.0, 2.0, 0.0)),
    "ranks": Scaling(
        "ranks", (0.0, 0.0, 1.0, 0.0, 0.0), (1.0, 1.0, 2.0, 1.0, 1.0), (),
        (RankTable(0, (-1.0, 0.0, 0.2, 1.0), (-2.0, 0.0, 1.0, 1.5)), RankTable(4, (0.0, 3.0), (-1.0, 1.0))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings_are_part_of_the_graph(name: str, tmp_path: Path) -> None:
    model = model_of(Gaussian(2.0), scaling=SCALINGS[name])
    X = rows_of(30, 5, "float64") * 3
    np.testing.assert_allclose(outputs_of(model, X, tmp_path)["prediction"], model.predict(X), rtol=1e-4, atol=1e-5)


COLUMNS = (
    ColumnEncoding("age", fill=2.5),
    ColumnEncoding("job", "onehot", ("baker", "missing"), "missing"),
    ColumnEncoding("size", "ordinal", ("L", "M", "S")),
    ColumnEncoding("label", "code", ("x", "y")),
)


def test_columns_of_a_table_are_encoded_as_recorded(tmp_path: Path) -> None:
    model = model_of(Gaussian(2.0), loss="hinge", task="classification", classes=("a", "b"), encoding=COLUMNS)
    model.to_onnx(tmp_path / "m.onnx")
    session = Session(tmp_path / "m.onnx")
    table = {
        "age": np.array([[1.0], [np.nan], [3.0]]),
        "job": np.array([["baker"], [""], ["missing"]]),
        "size": np.array([["S"], ["L"], ["M"]]),
        "label": np.array([["y"], ["never seen"], ["x"]]),
    }
    X = np.array([[1.0, 1, 0, 2, 1], [2.5, 0, 1, 0, 2], [3.0, 0, 1, 1, 0]])
    found = session.run(table)
    assert set(found) == {"model label", "scores"}  # "label" is a column
    np.testing.assert_allclose(found["scores"], model.scores(X), rtol=1e-5)
    assert found["model label"].tolist() == model.predict(X).tolist()
    with pytest.raises(Exception, match="out of"):
        session.run({**table, "size": np.array([["S"], ["XL"], ["M"]])})
    model.to_onnx(tmp_path / "m.onnx", "features")
    np.testing.assert_allclose(session.run({"X": X})["scores"], model.scores(X), rtol=1e-5)


def test_no_label_is_given_for_what_is_not_a_number(tmp_path: Path) -> None:
    model = model_of(Gaussian(2.0), loss="hinge", task="classification", classes=("a", "b"))
    X = rows_of(3, 5)
    X[1, 0] = np.nan
    with pytest.raises(Exception, match="out of"):
        outputs_of(model, X, tmp_path)


class OwnProbabilities(Logistic):
    name = "own"

    def probabilities(self, f: Any) -> Any:
        return super().probabilities(f) ** 1.0


class OwnValues(Gaussian):
    name = "own_values"

    def block(self, X: Any, Z: Any, out: Any = None) -> Any:
        return super().block(X, Z, out)


REFUSED = {
    "kernels that are Python functions": lambda: model_of(CallableKernel(lambda X, Z: X @ Z.T)),
    "kernels whose values are computed by methods of their own": lambda: model_of(OwnValues(2.0)),
    "probabilities of losses of plug-ins": lambda: model_of(
        Gaussian(2.0), loss="own", task="classification", classes=("a", "b")
    ),
    "class labels of several kinds": lambda: model_of(
        Gaussian(2.0), loss="hinge", task="classification", classes=("a", 1)
    ),
    "models of more than 2 GB": lambda: model_of(Drawn(Gaussian(2.0), 0, 8, 1 << 24)),
}
"""What ONNX does not express: the words of the documentation, and a model."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_onnx_cannot_express_is_refused_in_one_sentence(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOSSES, "own", OwnProbabilities)
    with pytest.raises(ModelError) as error:
        REFUSED[what]().to_onnx(tmp_path / "m.onnx")
    assert str(error.value).count(". ") == 0
    assert "; " in str(error.value)
    assert not (tmp_path / "m.onnx").exists()


def test_the_documentation_lists_what_is_refused() -> None:
    text = (Path(daskkern.__file__).parents[1] / "docs" / "serving.md").read_text()
    section = text.partition("## What ONNX does not express")[2].partition("\n## ")[0]
    assert re.findall(r"^- (.+?)(?:[,:;] .*)?$", section, re.MULTILINE) == list(REFUSED)


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    model, path = model_of(Gaussian(2.0)), tmp_path / "m.onnx"
    model.to_onnx(path)
    model.to_onnx(path)
    path.write_bytes(b"something else")
    with pytest.raises(StoreError, match="not overwritten"):
        model.to_onnx(path)
    model.to_onnx(path, overwrite=True)
    with pytest.raises(SpecError, match="got inputs 'columns', but the model records no columns"):
        model.to_onnx(path, "columns")
    with pytest.raises(SpecError, match="got inputs 'rows'; choose one of auto, features, columns"):
        model.to_onnx(path, "rows")


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ModelError, match=r"pip install 'daskkern\[onnx\]'"):
        model_of(Gaussian(2.0)).to_onnx(tmp_path / "m.onnx")


def test_the_command_exports_a_model_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    jobs, ages = rng.choice(["baker", "smith"], 60), rng.integers(20, 70, 60).astype(float)
    pay = ages * 10 + 100 * (jobs == "smith")
    lines = [f"{job},{age},{value}" for job, age, value in zip(jobs, ages, pay, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["job,age,pay", *lines]) + "\n")
    model, out = tmp_path / "m.zarr", tmp_path / "m.onnx"
    daskkern.ingest(tmp_path / "t.csv", tmp_path / "s", target="pay", scale="standard")
    daskkern.KernelRegressor("gaussian:median", basis=daskkern.Landmarks(20), solver="direct").fit(
        str(tmp_path / "s")
    ).save(model)
    with pytest.raises(SystemExit) as end:
        main(["export", str(model), "--out", str(out)])
    assert end.value.code == 0
    assert f"the model is in {out}" in capsys.readouterr().out
    found = Session(out).run({"job": jobs[:, None].astype(object), "age": ages[:, None]})
    X = np.column_stack([jobs == "baker", jobs == "smith", ages]).astype(float)
    np.testing.assert_allclose(found["prediction"], daskkern.load(model).predict(X), rtol=1e-4)
    with pytest.raises(SystemExit) as end:
        main(["export", str(model), "--out", "m.h5"])
    assert end.value.code in (1, 2)
    assert "got --out 'm.h5'; expected the name of a file that ends in .onnx" in capsys.readouterr().err

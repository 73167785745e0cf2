"""Pictures of fits: what is drawn is what was measured, and what cannot be drawn is said in one sentence."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes, load_iris

import daskkern
from daskkern import KernelClassifier, KernelModel, KernelRegressor, Landmarks, plot
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import DataError, SpecError
from daskkern.events import SpectrumFound
from daskkern.monitor.figure_text import save_png
from daskkern.monitor.history import History
from daskkern.systems.comparing import Comparison, Curve

matplotlib.use("Agg")


@pytest.fixture
def axes() -> object:
    return Figure().subplots()


@pytest.fixture(scope="module")
def flowers() -> KernelClassifier:
    X, y = load_iris(return_X_y=True)
    model = KernelClassifier("gaussian:1", loss="logistic", basis=Landmarks(50), max_epochs=4, device="cpu")
    return model.fit(X[::2], y[::2], validation=(X[1::2], y[1::2]))


@pytest.fixture(scope="module")
def patients() -> KernelRegressor:
    X, y = load_diabetes(return_X_y=True)
    return KernelRegressor("gaussian:median", basis=Landmarks(50), max_epochs=3, device="cpu").fit(X, y)


def _with_spectrum(model: KernelModel, spectrum: SpectrumFound) -> KernelModel:
    return replace(model, provenance={**model.provenance, **replace(model.history_, spectrum=spectrum).to_json()})


def test_curves_are_the_columns_of_the_history(flowers: KernelClassifier, axes: object, tmp_path: Path) -> None:
    drawn = plot.history(flowers, axes=axes)
    assert drawn is axes
    losses, validation = drawn.get_lines()
    np.testing.assert_array_equal(losses.get_ydata(), flowers.history_["loss"])
    np.testing.assert_array_equal(validation.get_ydata(), flowers.history_["validation_loss"])
    flowers.save(tmp_path / "flowers.zarr")
    across = plot.history(
        tmp_path / "flowers.zarr", flowers.model_, show="validation_score", against="seconds", axes=Figure().subplots()
    )
    np.testing.assert_array_equal(across.get_lines()[0].get_xdata(), flowers.history_["elapsed"])
    assert [text.get_text() for text in across.get_legend().get_texts()] == [
        "flowers: validation accuracy",
        "eigenpro 2: validation accuracy",
    ]


def test_the_spectrum_is_drawn_before_and_after(flowers: KernelClassifier, axes: object) -> None:
    found = SpectrumFound(40, (0.5, 0.1, 0.01), (0.01, 0.01, 0.01), 32, 64.0, 50.0)
    before, after = plot.spectrum(_with_spectrum(flowers.model_, found), axes=axes).get_lines()
    np.testing.assert_array_equal(before.get_ydata(), found.eigenvalues)
    np.testing.assert_array_equal(after.get_ydata(), found.flattened)


def test_confusion_and_calibration_are_of_the_rows(flowers: KernelClassifier, axes: object) -> None:
    X, y = load_iris(return_X_y=True)
    shares = plot.confusion(flowers, X, y, axes=axes).get_images()[0].get_array()
    for true in range(3):
        for predicted in range(3):
            assert shares[true, predicted] == pytest.approx(np.mean(flowers.predict(X[y == true]) == predicted))
    line = plot.calibration(flowers, X, y, axes=Figure().subplots()).get_lines()[1]
    assert 0 < len(line.get_xdata()) <= 15


def test_words_of_users_are_no_formulas_and_any_script_is_quiet(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    labels = np.array([r"$\frac$", "花 $", "حب"])[y]
    model = KernelClassifier("gaussian:1", basis=Landmarks(30), max_epochs=1, device="cpu").fit(X, labels)
    figure = Figure()
    drawn = plot.confusion(model, X, labels, axes=figure.subplots())
    save_png(figure, tmp_path / "a.png", 50)
    assert {text.get_text() for text in drawn.get_xticklabels()} == {r"\$\frac\$", r"花 \$", "حب"}
    assert check_file(tmp_path / "a.png", FileKind.PICTURE) == tmp_path / "a.png"
    model.save(tmp_path / "$x^$.zarr")
    figure = Figure()
    places = [tmp_path / "$x^$.zarr"] * 2
    plot.history(*places, show="loss", axes=figure.subplots())
    save_png(figure, tmp_path / "b.png", 50)


def test_residuals_are_predictions_less_the_truth(patients: KernelRegressor, axes: object) -> None:
    X, y = load_diabetes(return_X_y=True)
    points = plot.residuals(patients, X, y, axes=axes).collections[0].get_offsets()
    np.testing.assert_allclose(points, np.column_stack([y, patients.predict(X) - y]))


def test_fits_and_systems_are_compared_by_error_and_time(
    flowers: KernelClassifier, axes: object, tmp_path: Path
) -> None:
    line = plot.compare(flowers, axes=axes).get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), 1 - flowers.history_["validation_score"])
    curve = Curve("falkon", "columns", "falkon", "landmarks", 2.0, 2, 0.1, ((1.0, 0.2), (2.0, 0.1)), "max_epochs")
    refused = Curve("krls", "rows", "direct", "all rows", 0.0, 0, None, reason="refused", problem="too many rows")
    found = Comparison("a", "b", "classification", "error", None, 10, 2, "gaussian", (curve, refused))
    found.save(tmp_path / "comparison.json")
    assert Comparison.read(tmp_path / "comparison.json") == found
    lines = plot.compare(tmp_path / "comparison.json", axes=Figure().subplots()).get_lines()
    assert [(line.get_label(), *line.get_ydata()) for line in lines] == [("falkon", 0.2, 0.1)]


@pytest.mark.parametrize(
    ("draw", "kind", "message"),
    [
        (lambda f, p: plot.history(p, show="validation_loss"), DataError, "no validation loss in the history"),
        (lambda f, p: plot.history(p, show="los"), SpecError, "got show='los' to draw"),
        (lambda f, p: plot.history(p, against="day"), SpecError, "expected 'epoch' or 'seconds'"),
        (lambda f, p: plot.history(np.zeros(3)), SpecError, "got a ndarray to draw"),
        (
            lambda f, p: plot.spectrum(replace(p.model_, provenance={})),
            DataError,
            "has no spectrum to draw: its solver has no",
        ),
        (lambda f, p: plot.confusion(p, *load_diabetes(return_X_y=True)), DataError, "draw its residuals"),
        (lambda f, p: plot.residuals(f, *load_iris(return_X_y=True)), DataError, "draw its confusion matrix"),
        (lambda f, p: plot.confusion(f, load_iris().data), DataError, "got X without y"),
        (lambda f, p: plot.calibration(p, *load_diabetes(return_X_y=True)), DataError, "has no probabilities"),
        (lambda f, p: plot.time_shares(replace(p.model_, provenance={})), DataError, "saved without the times"),
        (lambda f, p: plot.compare(p), DataError, "no fit has errors"),
        (lambda f, p: plot.compare(f, p), SpecError, "give models of one task"),
        (lambda f, p: plot.compare("missing.json"), SpecError, "is not a comparison"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    draw: Callable[[object, object], object],
    kind: type[Exception],
    message: str,
    flowers: KernelClassifier,
    patients: KernelRegressor,
) -> None:
    with pytest.raises(kind, match=message):
        draw(flowers, patients)


def test_without_matplotlib_the_extra_is_named(
    flowers: KernelClassifier, axes: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SpecError, match=r"pip install .daskkern\[plot\]"):
        plot.history(flowers)


def test_a_history_can_be_drawn_from_the_front_door(flowers: KernelClassifier) -> None:
    assert daskkern.plot is plot
    assert isinstance(flowers.history_, History)

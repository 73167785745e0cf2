"""What ``daskkern fit`` does where nothing is said: kernel, columns, scaling."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import AllRows, Landmarks
from daskkern.cli.main import cli
from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError
from daskkern.kernels import AutoKernel

X = np.random.default_rng(0).standard_normal((300, 4)) * [1.0, 1e3, 1e-3, 10.0] + [0.0, 5e3, 0.0, -1.0]
Y = (X[:, 0] * X[:, 2] > 0).astype(int)


def _settings(n_rows: int, **values: Any) -> Any:
    return FitRequest(values).settings("classification", n_rows)


def test_all_rows_are_centres_up_to_a_number_of_rows_and_where_nothing_forbids_it() -> None:
    assert isinstance(_settings(10_000).basis, AllRows)
    assert _settings(10_000).kernel == AutoKernel()
    for settings in (
        _settings(10_001),
        _settings(500, sampling="balanced"),
        _settings(500, virtual_shards=2),
        _settings(500, solver="falkon", loss="squared"),
        _settings(500, selector="stratified"),
    ):
        assert isinstance(settings.basis, Landmarks)
        assert settings.basis.n == 10_000
    assert isinstance(_settings(20_000, solver="pcg", loss="squared").basis, AllRows)


def test_the_scaling_is_a_word_none_or_auto() -> None:
    assert _settings(9).scale == "auto"
    assert _settings(9, scale="none").scale is None
    assert _settings(9, scale="robust").scale == "robust"
    assert _settings(9, system="eigenpro4").scale == "auto"
    assert _settings(9, system="eigenpro4", scale="none").scale is None
    with pytest.raises(SpecError, match="got scale='zscore'"):
        _settings(9, scale="zscore")


@pytest.mark.parametrize("values", [{"epochs": 5}, {"batch_size": 50}, {"early_stopping": True}])
@pytest.mark.parametrize("solver", ["direct", "svm"])
def test_epochs_of_a_solver_that_has_none_are_refused(solver: str, values: dict[str, Any]) -> None:
    loss = {"direct": "squared", "svm": "hinge"}[solver]
    option = "--" + next(iter(values)).replace("_", "-")
    with pytest.raises(SpecError, match=f"got {option} with solver {solver}, which has no epochs; leave it out"):
        _settings(300, solver=solver, loss=loss, **values)
    unchanged = {"epochs": 1, "batch_size": "auto", "early_stopping": False}
    assert _settings(300, solver=solver, loss=loss, **unchanged).max_epochs == 1


def _fitted(folder: Path, rows: np.ndarray, *words: str) -> Any:
    np.savez(folder / "rows.npz", X=rows, y=Y)
    for call in (
        ["ingest", str(folder / "rows.npz"), "--out", str(folder / "rows.zarr"), "--overwrite"],
        ["fit", str(folder / "rows.zarr"), "--out", str(folder / "m.zarr"), "--workers", "0", "--overwrite", *words],
    ):
        result = CliRunner().invoke(cli, call, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    score = CliRunner().invoke(cli, ["score", str(folder / "m.zarr"), str(folder / "rows.zarr")])
    assert score.exit_code == 0
    return daskkern.load(str(folder / "m.zarr"))


@pytest.mark.long
def test_stores_of_raw_rows_are_scaled_in_the_fit(tmp_path: Path) -> None:
    plain = _fitted(tmp_path, X)
    assert plain.scaling.kind == "auto"
    units = np.array([2.0, 0.125, 4096.0, 1.0])
    other = _fitted(tmp_path, X * units)
    np.testing.assert_allclose(other.decision_function(X * units), plain.decision_function(X), rtol=1e-3, atol=1e-3)
    assert (plain.predict(X) == Y).mean() > 0.9
    assert _fitted(tmp_path, X, "--scale", "none").scaling.kind == "none"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reading", "once"),
        ("virtual_shards", 4),
        ("keep_blocks", "disk"),
        ("precision", "float32"),
        ("sampling", "balanced"),
        ("max_seconds", 60.0),
    ],
)
def test_a_setting_is_the_same_at_the_command_line_and_in_python(name: str, value: Any) -> None:
    for estimator in (KernelClassifier, KernelRegressor):
        found = [_settings(500, **{name: value}), estimator(**{name: value}).fit_settings(500)]
        assert [getattr(settings, name) for settings in found] == [value, value]
    with pytest.raises(SpecError, match="got reading='twice'; expected one of auto, once, each"):
        KernelClassifier(reading="twice").fit(X, Y)

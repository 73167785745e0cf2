"""Rows of the papers that are run again measure what their page says."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, with its folder on the path for as long as the test lasts."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module("reproduce")
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def data(tmp_path: Path, reproduce: ModuleType) -> Any:
    return reproduce.load(reproduce.tiny_data(tmp_path / "tiny.npz"))


def _row(reproduce: ModuleType, **chosen: Any) -> Any:
    """Return the first of the tiny rows with these values."""
    (found, *_) = (
        row for row in reproduce.tiny_rows() if all(getattr(row, name) == value for name, value in chosen.items())
    )
    return found


def test_the_last_loss_is_that_of_the_model_on_its_training_rows(reproduce: ModuleType, data: Any) -> None:
    row = _row(reproduce, unit="loss")
    found = reproduce.run_row(row, data)
    model = row.estimator(data, calibrate=False).fit(data.X, data.y)
    signs = np.where(data.y == model.classes_[1], 1.0, -1.0)
    expected = np.mean((model.decision_function(data.X) - signs) ** 2)
    assert found["our_loss"] == pytest.approx(expected, rel=1e-6)
    assert found["our_loss"] != pytest.approx(2 * model.history_["loss"][-1], rel=1e-3)  # before each step


def test_steps_are_compared_with_the_kth_eigenvalue(reproduce: ModuleType, data: Any) -> None:
    row = _row(reproduce, unit="steps")
    found = reproduce.run_row(row, data)
    kernel = reproduce.NYSTROM_KERNELS["INV"]
    model = replace(row, kernel=kernel, loss="squared").estimator(data).fit(data.X, data.y)
    spectrum = model.history_.spectrum
    k = row.solver.n_directions
    assert len(spectrum.eigenvalues) == k + 1
    step = (spectrum.eigenvalues[0] * spectrum.eigenvalues[k - 1]) ** -0.5
    assert found["squared_step_ratio"][2] == pytest.approx(spectrum.step / step, abs=1e-3)
    assert found["rule_step_ratio"][0] == 1
    said = import_module("papers.documents").ours_in_words(found)
    assert f"the rule's steps are to each other as 1, {found['rule_step_ratio'][1]:.3g}" in said


def test_phases_are_timed_by_the_processor(reproduce: ModuleType, data: Any) -> None:
    row = replace(_row(reproduce, unit="error"), paper_setup_seconds=1.0, paper_epoch_seconds=1.0)
    found = reproduce.run_row(row, data)
    assert 0 < found["our_epoch_processor_seconds"] < 60
    words = import_module("papers.documents").ours_in_words
    assert words({**found, "load_average": 9.0}).endswith(" s an epoch of processor time")
    older = {"unit": "seconds", "our_setup_seconds": 3.0, "our_epoch_seconds": 1.0}
    assert words(older) == "3 s, and 1 s an epoch"


def test_finite_sums_come_closer_to_the_least_objective(reproduce: ModuleType, data: Any) -> None:
    (row,) = (each for each in reproduce.ROWS if each.key == "sag-adult")
    found = reproduce.run_row(replace(row, n_epochs=4, data="tiny", alpha=0.1), data)
    assert found["n_epochs_each"] == [1, 2, 4]
    for name, number in (("SAG with line search", 2), ("SVRG", 3), ("gradient descent", 6)):
        assert found["curves"][number - 1] == f"{name}, excess loss"
        values = found[f"curve_{number}_loss"]
        assert -1e-6 <= values[-1] < values[0]


def test_epochs_are_shown_as_chosen_on_held_out_rows_and_as_the_best_on_test_rows(
    reproduce: ModuleType, data: Any
) -> None:
    found = reproduce.run_row(_row(reproduce, unit="epochs"), data)
    assert found["best_test_error"] <= found["our_error"]
    said = import_module("papers.documents").ours_in_words(found)
    chosen, best = (found[f"n_{name}_epochs"] for name in ("chosen", "best_test"))
    assert f"{found['our_error']:.2%} after the epoch that these choose, {chosen} of 2" in said
    assert f"{found['best_test_error']:.2%} after the best for test rows, {best}" in said


@pytest.mark.parametrize("curves", ["descent", "losses", "conditioning", "overhead"])
def test_a_figure_has_a_number_for_each_point_of_a_curve(reproduce: ModuleType, data: Any, curves: str) -> None:
    found = reproduce.run_row(_row(reproduce, curves=curves), data)
    said = import_module("papers.documents").ours_in_words(found)
    for number, name in enumerate(found["curves"], 1):
        values = found[f"curve_{number}_{name.split()[-1]}"]
        assert 1 <= len(values) <= len(found["n_epochs_each"])
        assert all(0 <= value < 2 for value in values)
        assert name in said
    if curves == "losses":
        last = max(found[f"curve_{number}_error"][-1] for number in (1, 2, 3))
        assert found["reference_error"] == pytest.approx(last, abs=1e-3)


def test_the_penalty_of_exact_support_vectors_follows_from_the_rows(reproduce: ModuleType, data: Any) -> None:
    row = replace(_row(reproduce, unit="peer"), most_rows=50)
    assert row.estimator(row.of(data)).alpha == 1 / 50
    found = reproduce.run_row(row, data)
    assert found["our_error"] == found["peer_error"]


def test_seconds_of_a_busy_machine_are_said_to_be(reproduce: ModuleType) -> None:
    ours = import_module("papers.documents").ours_in_words
    row = {"unit": "error", "our_error": 0.1, "our_seconds": 12.0}
    assert ours(row) == "10.00% in 12 s"
    assert ours({**row, "load_average": 9.0}) == "10.00% in 12 s while other programs ran"
    row["our_processor_seconds"] = 20.0
    assert ours({**row, "load_average": 9.0}) == "10.00% in 20 s of processor time"
    assert ours(row) == "10.00% in 12 s"


def test_the_rows_of_the_system_asset_are_that_system(reproduce: ModuleType, data: Any) -> None:
    system = import_module("daskkern.systems").SYSTEMS["asset"]
    (row,) = (each for each in reproduce.ROWS if each.key == "asset-adult-512")
    ours, theirs = row.estimator(data), system.for_task("classification", 512)
    for name in ("solver", "loss", "basis", "alpha", "batch_size", "max_epochs", "fit_intercept"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_kernels_with_one_direction_are_left_out_of_the_steps(reproduce: ModuleType, data: Any) -> None:
    row = _row(reproduce, unit="steps")
    near = replace(data, X=data.X * 1e-5, X_test=data.X_test * 1e-5)  # the RBF kernel is 1 but for rounding
    found = reproduce.run_row(row, near)
    assert found["kernels"] == ["ARC", "INV"]
    assert len(found["squared_step_ratio"]) == len(found["squared_hinge_step_ratio"]) == 2


def test_reviews_become_frequencies_of_the_words_after_the_most_frequent(
    reproduce: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews = import_module("papers.reviews")
    monkeypatch.setattr(reviews, "N_OMITTED", 1)
    monkeypatch.setattr(reviews, "N_WORDS", 2)
    monkeypatch.setattr(reviews, "N_PART", 1)
    texts = ["a film", "The film, the<br />film: bad bad, the", "A good film", "the good, the GOOD film"]
    source = tmp_path / "reviews.json"
    source.write_text(json.dumps([{"t": text, "s": number // 2} for number, text in enumerate(texts)]))
    reviews.main(source, tmp_path / "words.npz")
    found = reproduce.load(tmp_path / "words.npz")  # "the" is left out; "film", three times, "bad" and "good", twice
    rows = {label: list(row) for label, row in zip(found.y, found.X.toarray(), strict=True)}
    assert rows == {0: [0.5, 0.5], 1: [1, 0]}
    rows = {label: list(row) for label, row in zip(found.y_test, found.X_test.toarray(), strict=True)}
    assert rows == {0: [1, 0], 1: [1, 0]}

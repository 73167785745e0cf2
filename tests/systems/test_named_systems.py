"""Every named system is complete, fits a small problem well, and is compared on a store."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits

import daskkern
from daskkern import systems
from daskkern.basis import Landmarks, LocallyLinear, NystromFeatures, RandomFeatures
from daskkern.errors import SpecError
from daskkern.events import EpochFinished, Event, StopRequested
from daskkern.kernels import Cauchy, Gaussian, Laplacian
from daskkern.kernels.engines.native import compiler
from daskkern.systems import GROUPS, SYSTEMS, System, compare
from daskkern.systems.plot import plot_comparison

LINEAR_ERROR, KERNEL_ERROR = 0.12, 0.07  # of scikit-learn's LogisticRegression and SVC on these rows: 0.07, 0.02


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("systems")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X[:700], y=y[:700])
    places = folder / "train.zarr", folder / "test.zarr"
    daskkern.ingest([str(folder / "digits.npz")], places[0], scale="minmax", split=0.3, out_test=places[1])
    return str(places[0]), str(places[1])


@pytest.mark.one_in(13)
@pytest.mark.parametrize("name", [row.name for row in SYSTEMS.values() if "classification" in row.tasks])
def test_it_classifies_digits(name: str, stores: tuple[str, str]) -> None:
    (curve,) = compare(stores[0], [SYSTEMS[name]], test=stores[1], columns=200, budget_s=60.0).curves
    assert curve.problem == ""
    assert curve.error is not None
    assert curve.error <= (LINEAR_ERROR if SYSTEMS[name].group == "linear" else KERNEL_ERROR)
    stopped = curve.reason == "max_seconds"  # an epoch that was stopped has no point
    assert 0 <= curve.epochs - len(curve.points) <= stopped
    assert all(0 <= error <= 1 for _, error in curve.points)
    seconds = [at for at, _ in curve.points]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= curve.seconds + 0.5
    assert min(abs(error - curve.error) for _, error in curve.points) <= 0.02  # that of the best epoch may be chosen


@pytest.mark.one_in(13)
@pytest.mark.parametrize("name", [row.name for row in SYSTEMS.values() if "regression" in row.tasks])
def test_it_regresses(name: str) -> None:
    X, y = load_diabetes(return_X_y=True, scaled=True)
    X = X / X.std(axis=0)
    model = systems[name].for_task("regression", 100).set_params(alpha=1e-2, device="cpu")
    assert model.fit(X[:350], y[:350]).score(X[350:], y[350:]) > 0.3  # the mean gives 0, ridge regression 0.5


def test_the_package_is_a_table() -> None:
    assert set(systems) == set(SYSTEMS)
    assert len(systems) == len(SYSTEMS)
    assert "falkon" in systems
    assert systems["falkon"] is SYSTEMS["falkon"]
    assert {row.group for row in SYSTEMS.values()} <= set(GROUPS)
    for row in SYSTEMS.values():
        assert row.line
        assert row.reference
        assert row.estimator.get_params()["solver"] == row.solver
        assert row.tasks


@pytest.mark.parametrize("row", SYSTEMS.values(), ids=SYSTEMS)
def test_the_number_of_columns_is_a_choice_where_there_is_one(row: System) -> None:
    basis = row.with_columns(77)
    assert getattr(basis, "n", 77) == 77
    assert isinstance(basis, Landmarks | LocallyLinear | NystromFeatures | RandomFeatures) or basis == row.basis


def test_names_are_found_in_any_spelling() -> None:
    assert systems["EigenPro 2"].name == "eigenpro2"
    assert systems["k-SDCA"].name == "k_sdca"
    assert systems["Block coordinate descent"].name == "block_coordinate_descent"


def test_what_is_unknown_is_said() -> None:
    with pytest.raises(SpecError, match="system 'falkn' is unknown; did you mean 'falkon'"):
        systems["falkn"]
    with pytest.raises(SpecError, match="got task regression for system falkon_logistic; it is for classification"):
        SYSTEMS["falkon_logistic"].for_task("regression")
    with pytest.raises(SpecError, match="give 'classification' or 'regression'"):
        SYSTEMS["falkon"].for_task("clustering")


def test_a_system_that_refuses_leaves_the_others_alone(stores: tuple[str, str]) -> None:
    rows = [SYSTEMS["pcg"], SYSTEMS["krls"], SYSTEMS["elm"]]
    *refused, fitted = compare(stores[0], rows, test=stores[1], kernel=Gaussian((1.0, 2.0)), columns=100).curves
    assert [curve.reason for curve in refused] == ["refused", "refused"]
    assert "length scale" in refused[0].problem
    assert fitted.error is not None  # its hidden layer has no kernel
    with pytest.raises(SpecError, match="no systems were named"):
        compare(stores[0], [])


def test_an_interrupt_leaves_what_was_found(stores: tuple[str, str]) -> None:
    def on_event(name: str, event: Event | None) -> None:
        if name == "eigenpro_rf" and event is not None:
            raise KeyboardInterrupt

    rows = [SYSTEMS["elm"], SYSTEMS["eigenpro_rf"], SYSTEMS["falkon"]]
    found = compare(stores[0], rows, test=stores[1], columns=50, on_event=on_event)
    assert [curve.reason for curve in found.curves[1:]] == ["interrupted", "interrupted"]
    assert [curve.problem for curve in found.curves[1:]] == ["interrupted", "not run"]
    assert found.curves[0].error is not None
    with pytest.raises(KeyboardInterrupt):
        compare(stores[0], rows[1:], columns=50, on_event=on_event)


def test_an_interrupt_that_a_fit_heeds_ends_the_comparison(stores: tuple[str, str]) -> None:
    pressed, answers = [], []

    def on_event(name: str, event: Event | None) -> None:
        answers.extend([event.reason] if isinstance(event, StopRequested) else [])
        if isinstance(event, EpochFinished) and event.epoch == 1 and not pressed:
            pressed.append(name)
            signal.raise_signal(signal.SIGINT)

    rows = [SYSTEMS["eigenpro_rf"], SYSTEMS["falkon"], SYSTEMS["elm"]]
    found = compare(stores[0], rows, test=stores[1], columns=50, on_event=on_event)
    assert [curve.reason for curve in found.curves] == ["interrupted"] * 3
    assert found.curves[0].error is not None  # of the model so far
    assert [curve.problem for curve in found.curves[1:]] == ["not run", "not run"]
    assert len(answers) == 1
    assert answers[0].startswith("stopping within a few steps")


def test_time_is_a_budget(stores: tuple[str, str]) -> None:
    curve = compare(stores[0], [SYSTEMS["eigenpro2"]], budget_s=1e-3).curves[0]
    assert curve.reason == "max_seconds"
    assert curve.epochs <= 1
    assert curve.points == ()  # the one epoch was cut, and nothing measured in it


@pytest.mark.long
def test_what_was_found_is_written_and_drawn(stores: tuple[str, str], tmp_path: Path) -> None:
    rows = [SYSTEMS[name] for name in ("falkon", "elm", "pegasos")]
    found = compare(stores[0], rows, test=stores[1], columns=50)
    pytest.importorskip("matplotlib", reason="install matplotlib to draw comparisons")
    found.save(tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())
    assert [curve["system"] for curve in written["curves"]] == [curve.system for curve in found.curves]
    plot_comparison(found, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["c.json", "c.png"]


def test_no_system_is_timed_while_kernels_are_compiled(
    stores: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, known = [], []
    machine_code = compiler.machine_code

    def counted(*called: Any) -> Any:
        compiled.append(called)
        return machine_code(*called)

    monkeypatch.setattr(compiler, "machine_code", counted)
    kernel = Gaussian(2.0) * Laplacian(3.0) + Cauchy(1.0)  # of no other test
    rows = [SYSTEMS["eigenpro4"], SYSTEMS["falkon"]]
    found = compare(
        stores[0],
        rows,
        test=stores[1],
        kernel=kernel,
        columns=50,
        on_event=lambda name, event: known.append((name, event, len(compiled))),
    )
    assert [curve.problem for curve in found.curves] == ["", ""]
    if not compiled:
        pytest.skip("needs a processor for which kernels are compiled: AVX2 or AVX-512")
    for name in ("eigenpro4", "falkon"):
        counts = [count for each, event, count in known if each == name and event is not None]
        assert set(counts) == {counts[0]}
        last = counts[-1]
    assert last == len(compiled)

"""What notebooks and consoles show of objects: short, escaped, and without colours of its own."""

import importlib
import io
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.cluster.scheduler.fits import FitStatus
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.data.storage.store import open_store
from daskkern.display import html_facts, html_table, rounded
from daskkern.kernels import KERNELS, parse_kernel
from daskkern.monitor.progress import progress
from daskkern.systems import sweep
from daskkern.systems.comparing import Comparison, Curve
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.planning.memory_plan import MemoryPlan

_BAD = "<script>alert(1)</script>"


def _texts(html: str) -> list[str]:
    """Return all texts of HTML that is well-formed and has no script, no fixed colour and nothing from elsewhere."""
    for word in ("<script", "http", ":#", "white", "black"):
        assert word not in html
    return [text.strip() for text in ElementTree.fromstring(html).itertext() if text.strip()]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shown")
    rng = np.random.default_rng(0)
    labels = np.array(["a", "b", _BAD])[rng.integers(0, 3, 90)]
    np.savez(folder / "d.npz", X=rng.standard_normal((90, 3)), y=labels)
    store = folder / "d.zarr"
    daskkern.ingest([str(folder / "d.npz")], store)
    classifier = KernelClassifier("gaussian:2", basis=Landmarks(20), max_epochs=2, calibrate=False).fit(store)
    curves = (Curve("falkon", "g", "s", "b", 1.0, 3, 0.25), Curve("x", "g", "s", "b", 1.0, 0, None, problem=_BAD))
    return {
        "store": open_store(store),
        "model": classifier.model_,
        "history": classifier.history_,
        "handle": FitHandle("7f3a", "tcp://host:8786", "s3://user:secret@bucket/m.zarr"),
        "status": FitStatus(FitMetadata("7f3a", "n", "me", "a.zarr", "s3://user:secret@bucket/m.zarr"), error=_BAD),
        "sweep": sweep(store, "falkon", landmarks=10, alphas=[1e-3]),
        "comparison": Comparison("a", "b", "classification", "error", None, 90, 3, _BAD, curves),
        "plan": MemoryPlan((("coefficients", 1000), (_BAD, 24)), 0, 0, False, 2_000_000),
    }


def test_every_object_is_a_small_escaped_table(shown: dict[str, Any]) -> None:
    for name, value in shown.items():
        html = value._repr_html_()
        assert len(_texts(html)) > 3, name
        assert len(html) < 10_000, name
        assert "secret" not in html
    assert any(_BAD in text for text in _texts(shown["store"]._repr_html_()))
    assert "90" in _texts(shown["store"]._repr_html_())
    assert "Gaussian(length_scale=2.0)" in _texts(shown["model"]._repr_html_())
    assert len(shown["sweep"].points) == _texts(shown["sweep"]._repr_html_()).count("0.001")


def test_texts_of_objects_have_three_lines_at_most(shown: dict[str, Any]) -> None:
    for name, value in shown.items():
        if name != "history":  # a table
            assert len(repr(value)) < 250, name
            assert repr(value).count("\n") < 3, name
    assert repr(shown["model"]).startswith("<KernelModel: classification, 20 points x 3 features, Gaussian(")


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_says_what_it_is(name: str) -> None:
    texts = _texts(parse_kernel(name)._repr_html_())
    assert texts[0] == f"kernel {parse_kernel(name).name}"
    assert "what" in texts


def test_long_tables_are_cut_and_say_so() -> None:
    texts = _texts(html_table("t", ("n",), [(k,) for k in range(130)], "a note"))
    assert "30 more rows are not shown. a note" in texts
    assert "100" not in texts
    assert _texts(html_facts("t", [("a", None), ("b", 0)])) == ["t", "b", "0"]


PACKAGES = (
    *("daskkern", "daskkern.basis", "daskkern.estimators", "daskkern.inspection", "daskkern.kernels"),
    *("daskkern.landmarks", "daskkern.losses", "daskkern.models", "daskkern.plot", "daskkern.solvers"),
    *("daskkern.systems", "daskkern.unsupervised"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_only_public_names_are_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in dir(module) if not name.startswith("__")] == sorted(module.__all__)


def test_a_model_and_its_history_are_one_call_from_a_plot(shown: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    for value in (shown["model"], shown["history"]):
        axes = value.plot("loss")
        np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), shown["history"]["loss"])
        assert axes.get_ylabel() == "training loss"
        pyplot.close(axes.figure)


def test_a_quiet_console_shows_no_progress() -> None:
    stream = io.StringIO()
    with progress(3, Console(file=stream, force_terminal=True, quiet=True)):
        pass
    assert stream.getvalue() == ""


def test_numbers_are_short_and_have_units(shown: dict[str, Any]) -> None:
    texts = _texts(parse_kernel("laplacian_l1:10.480321823386475")._repr_html_())
    assert "10.4803" in texts
    assert "()" not in texts
    history = _texts(shown["history"]._repr_html_())
    assert {"rows/s", "elapsed s", "seconds"} <= set(history)
    assert any(text.endswith("%") for text in history)


def test_words_are_to_the_left_and_numbers_to_the_right() -> None:
    html = html_table("t", ("item", "memory"), [("own columns", "3 kB"), ("tiles", "1.2 MB")])
    assert [part[:5] for part in html.split("text-align:")[1:]] == ["left;", "right"] * 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gaussian:3.0975709501595734", "gaussian:3.09757"),
        ("(-0.123456789, 1.2345678e-05)", "(-0.123457, 1.23457e-05)"),
        ("/data/run-0.123456789.zarr", "/data/run-0.123456789.zarr"),
        ("/data/0.123456789/x", "/data/0.123456789/x"),
    ],
)
def test_long_numbers_are_rounded_and_paths_are_not(text: str, shown: str) -> None:
    assert rounded(text) == shown

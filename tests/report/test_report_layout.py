"""What a report looks like: legends beside the data, one meaning of a color, and tables that fit a phone."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.data.storage.store import Store, open_store
from daskkern.evaluation.calibration_facts import calibration_of
from daskkern.evaluation.plot_data import observe
from daskkern.monitor import palette
from daskkern.monitor.shares import PARTS
from daskkern.plot.predictions import draw_calibration
from daskkern.plot.rankings import draw_precision_recall, draw_roc_curve
from daskkern.report import write_report
from tests.support.browser import browser, missing

_PHONE = 390


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[KernelClassifier, Store]:
    folder = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    names = np.array([f"{label} has a long name" for label in y])
    np.savez(folder / "rows.npz", X=X[:400].astype(np.float32), y=names[:400])
    daskkern.ingest([str(folder / "rows.npz")], folder / "rows.zarr")
    model = KernelClassifier("gaussian:20", basis=Landmarks(60), max_epochs=2, device="cpu")
    store = open_store(folder / "rows.zarr")
    return model.fit(folder / "rows.zarr"), store


def test_legends_lie_outside_of_the_axes(digits: tuple[KernelClassifier, Store]) -> None:
    model, store = digits
    score = observe(model.model_, store).score
    for draw in (draw_roc_curve, draw_precision_recall):
        axes = draw(model.model_, score, Figure(figsize=(5, 4.2), layout="constrained").subplots())
        axes.figure.draw_without_rendering()
        assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1
        assert "no information" in [text.get_text() for text in axes.get_legend().get_texts()]
    axes = draw_calibration(score, Figure(figsize=(5, 4.2), layout="constrained").subplots())
    axes.figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_a_class_has_one_color_in_both_rankings(digits: tuple[KernelClassifier, Store]) -> None:
    model, store = digits
    score = observe(model.model_, store).score
    colors = []
    for draw in (draw_roc_curve, draw_precision_recall):
        lines = draw(model.model_, score, Figure().subplots()).get_lines()
        named = [line for line in lines if ":" in str(line.get_label())]
        colors.append({str(line.get_label()).partition(":")[0]: line.get_color() for line in named})
    assert len(colors[0]) == 6
    assert colors[0] == colors[1]


def test_a_color_of_the_time_has_one_meaning(digits: tuple[KernelClassifier, Store], tmp_path: Path) -> None:
    parts = list(palette.PART_COLORS.values())
    other = [palette.TRAINING, palette.VALIDATION, *palette.COLORS, palette.EIGENVALUES, palette.FLATTENED]
    assert set(palette.PART_COLORS) == set(PARTS)
    assert len({*parts, *other, *palette.STAGE_COLORS}) == len(parts) + len(other) + len(palette.STAGE_COLORS)
    model, _ = digits
    write_report(model.model_, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    dots = dict(re.findall(r'class="dot" style="background:(#\w+)"></span>([^<]+)<', text))
    names = {name: color for color, name in dots.items()}
    assert names["computing"] == palette.PART_COLORS["computing"]
    assert set(names.values()) & set(palette.STAGE_COLORS), "a stage that took no time is not shown"
    shown = text[text.index('id="caption-time"') :]
    assert palette.PART_COLORS["computing"] in shown[: shown.index("</svg>")]


def test_facts_of_the_calibration_have_names_that_say_what_they_are(digits: tuple[KernelClassifier, Store]) -> None:
    names = [name for name, _ in calibration_of(digits[0].model_)]
    assert "on these rows" in names
    assert "there" not in names


@pytest.mark.repeated
@pytest.mark.skipif(bool(missing()), reason=f"no headless Chromium: {missing()}")
def test_tables_fit_a_phone(digits: tuple[KernelClassifier, Store], tmp_path: Path) -> None:
    model, store = digits
    write_report(model.model_, tmp_path / "report.html", test=store)
    wider = """return [...document.querySelectorAll("table")].filter(table => !table.closest("details") &&
        table.getBoundingClientRect().right > table.closest(".card").getBoundingClientRect().right)
        .map(table => table.innerText.slice(0, 60))"""
    with browser(1200, 900) as driver:
        size = {"width": _PHONE, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get((tmp_path / "report.html").as_uri())
        assert driver.execute_script(wider) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") == _PHONE
        tallest = "return Math.max(...[...document.querySelectorAll('.parts tr')].map(row => row.offsetHeight))"
        assert driver.execute_script(tallest) < 90

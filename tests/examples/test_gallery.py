"""The gallery of the site: its scripts run without a warning, and each draws a figure."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery_page", DOCS / "gallery_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gallery_page"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


GALLERY = _gallery()


def test_every_script_is_shown_with_a_title_and_a_sentence() -> None:
    assert sorted(GALLERY.ORDER) == sorted(path.stem for path in (DOCS / "gallery").glob("*.py"))
    page = GALLERY.page()
    for name in GALLERY.ORDER:
        found = GALLERY.entry(name)
        assert found.title
        assert found.words.endswith(".")
        assert f"](gallery/{name}.png)" in page
        assert "import" in found.code


@pytest.mark.long
@pytest.mark.one_in(10, first=3)
@pytest.mark.parametrize("name", GALLERY.ORDER)
def test_every_script_draws_a_figure(name: str) -> None:
    drawn = GALLERY.picture(name)
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(drawn) > 5_000

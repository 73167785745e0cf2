"""Writes a report: reads the model, scores it where rows are given, and puts the page together."""

from collections.abc import Callable
from pathlib import Path

from daskkern.data.atomic import write_text
from daskkern.data.remote import name_of_place
from daskkern.data.store import Store
from daskkern.errors import StoreError
from daskkern.models import KernelModel
from daskkern.plot.given import require_matplotlib
from daskkern.report.page import page_of
from daskkern.report.pictures import pictures_of, write_png
from daskkern.training.observe import observe


def write_report(
    model: KernelModel,
    out: str | Path,
    *,
    name: str = "model",
    test: Store | None = None,
    test_name: str = "",
    png: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write a report on `model` to the HTML file `out`, which appears or is replaced when it is whole.

    Parameters
    ----------
    model : KernelModel
    out : path
        One file that refers to nothing outside of itself.
    name : str
        What the report calls the model.
    test : Store, optional
        Rows to score the model on, in one pass.
    test_name : str
        What the report calls them; by default as the store.
    png : path, optional
        A folder for the pictures as PNG files, too.
    progress : callable, optional
        Told rows done and rows in all while the model is scored.

    Returns
    -------
    list of Path
        The PNG files.

    Raises
    ------
    SpecError
        Without matplotlib.
    DaskkernError
        When the rows do not belong to the model, or a file cannot be written.
    """
    require_matplotlib()
    observed = None if test is None else observe(model, test, progress=progress)
    pictures = pictures_of(model, observed)
    test_name = test_name if test is None else name_of_place(test_name or test.path)
    page = page_of(name_of_place(name), model, pictures, observed, test_name)
    written = []
    if png is not None:
        folder = Path(png)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = [write_png(picture, folder) for picture in pictures]
        except OSError as error:
            raise StoreError(f"pictures cannot be written to {folder}: {error.strerror}; give another place") from None
    write_text(out, page)
    return written

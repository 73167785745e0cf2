"""Writing of a report: reads the model, scores it if rows are given, and composes the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from daskkern.data.remote.stores import is_url, name_of_place
from daskkern.data.storage.store import Store, open_store
from daskkern.data.transactions.atomic import write_text
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import SpecError, StoreError
from daskkern.evaluation.plot_data import observe
from daskkern.models.fitted import fitted_model
from daskkern.monitor.axes import require_matplotlib
from daskkern.report.facts import check_facts
from daskkern.report.features import NAMES, explain, feature_pictures
from daskkern.report.markdown import markdown_of
from daskkern.report.page import page_of
from daskkern.report.pictures import names_of, pictures_of, place_of, write_png


def write_report(
    model: Any,
    out: str | Path,
    *,
    name: str = "model",
    test: Store | str | Path | None = None,
    test_name: str = "",
    png: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write a report on `model` to the HTML file `out`, which is created or replaced only when complete.

    Parameters
    ----------
    model : KernelModel, fitted estimator, path or URL
    out : path
        A self-contained file.
    name : str
        The name of the model in the report.
    test : Store, path or URL, optional
        A store of rows to score the model on, in one pass.
    test_name : str
        Their name in the report; by default that of the store.
    png : path, optional
        A folder for additional PNG files of the pictures.
    progress : callable, optional
        Called with the rows done and the total rows while the model is scored.
    overwrite : bool
        Replace existing files of any kind; otherwise only reports and pictures that daskkern wrote.

    Returns
    -------
    list of Path
        The PNG files.

    Raises
    ------
    SpecError
        Without matplotlib, or for an invalid path; raised before the model is scored.
    DaskkernError
        When the rows do not belong to the model, or a file cannot be written.
    """
    require_matplotlib()
    model, test = fitted_model(model), _opened(test)
    check_places(out, png, overwrite=overwrite)
    check_facts(model)
    if png is not None and Path(png).is_dir():
        for picture in (*names_of(model, test is not None), *(NAMES if test is not None else ())):
            check_file(place_of(picture, Path(png)), FileKind.PICTURE, overwrite=overwrite)
    observed = None if test is None else observe(model, test, progress=progress)
    pictures = pictures_of(model, observed)
    pictures += [] if test is None else feature_pictures(explain(model, test))
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


def write_markdown(
    model: Any,
    out: str | Path,
    *,
    name: str = "model",
    test: Store | str | Path | None = None,
    test_name: str = "",
    progress: Callable[[int, int], None] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model card, a Markdown file on data, kernel, settings, metrics, limits and versions.

    For parameters see :func:`write_report`, but only model cards of daskkern are replaced without `overwrite`.

    Raises
    ------
    DaskkernError
        For an invalid path, rows that do not belong to the model, and a file that cannot be written.
    """
    model, test = fitted_model(model), _opened(test)
    check_file(out, FileKind.SUMMARY, overwrite=overwrite, option="--out")
    check_facts(model)
    observed = None if test is None else observe(model, test, progress=progress)
    test_name = test_name if test is None else name_of_place(test_name or test.path)
    write_text(out, markdown_of(name_of_place(name), model, observed, test_name))


def check_places(out: str | Path, png: str | Path | None, *, overwrite: bool) -> None:
    """Raise when a report may not be written to the file `out`, or its pictures not to the folder `png`."""
    check_file(out, FileKind.REPORT, overwrite=overwrite, option="--out")
    if png is None:
        return
    folder = Path(png)
    if not str(png) or is_url(str(png)) or (folder.exists() and not folder.is_dir()):
        raise SpecError(f"got --png {str(png)!r}, which is not a local folder; give the name of one")


def _opened(test: Store | str | Path | None) -> Store | None:
    return test if test is None or isinstance(test, Store) else open_store(test)

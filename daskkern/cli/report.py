"""``daskkern report`` and ``export``: an HTML report on a model, and a file that other runtimes predict with."""

from collections.abc import Callable
from pathlib import Path

import click

from daskkern.cli.console import progress_bar, remark, say
from daskkern.cli.options.json_option import json_option
from daskkern.data.storage.store import Store
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import SpecError
from daskkern.evaluation.raw_tables import rows_of
from daskkern.models import KernelModel, load_model
from daskkern.report import check_places, write_markdown, write_report


@click.command("report")
@click.argument("model")
@click.option("--test", metavar="STORE", help="Rows to score the model on; also a table with the training columns.")
@click.option(
    "--out", metavar="FILE", help="The self-contained HTML file to write, report.html by default; or the model card."
)
@click.option(
    "--card", "markdown", is_flag=True, help="Write a model card in Markdown instead, model-card.md by default."
)
@click.option("--png", metavar="FOLDER", help="Also write the figures there, as PNG files.")
@click.option("--overwrite", is_flag=True, help="Replace existing files that daskkern did not write.")
@json_option
def report_command(
    model: str, test: str | None, out: str | None, markdown: bool, png: str | None, overwrite: bool
) -> dict[str, object]:
    """Write a report on MODEL: scores, curves, spectrum, time, settings and environment."""
    if markdown and png is not None:
        raise SpecError("got --card and --png, but a model card has no figures; give one of them")
    place = ("model-card.md" if markdown else "report.html") if out is None else out
    if markdown:
        check_file(place, FileKind.SUMMARY, overwrite=overwrite, option="--out")
    else:
        check_places(place, png, overwrite=overwrite)
    fitted = load_model(model)
    if test is None:
        pictures = _write(fitted, model, place, markdown, png, overwrite)
    else:
        with rows_of(fitted, test) as rows, progress_bar() as bar:
            line = bar.add_task("scoring", total=rows.info.n_rows)
            pictures = _write(
                fitted, model, place, markdown, png, overwrite, rows, test,
                lambda done, total: bar.update(line, completed=done, total=total),
            )  # fmt: skip
    say(f"the {'model card' if markdown else 'report'} is in {place}")
    if png is not None:
        say(f"{len(pictures)} pictures are in {png}")
    if not len(fitted.history_) and not markdown:
        remark("note: the model was saved without a history, so the report has no curves")
    return {"out": place, "pictures": pictures}


def _write(
    fitted: KernelModel,
    name: str,
    out: str,
    markdown: bool,
    png: str | None,
    overwrite: bool,
    test: Store | None = None,
    test_name: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write the report or the card, and return the pictures written as files of their own."""
    if markdown:
        write_markdown(fitted, out, name=name, test=test, test_name=test_name, progress=progress, overwrite=overwrite)
        return []
    pictures = write_report(
        fitted, out, name=name, test=test, test_name=test_name, png=png, progress=progress, overwrite=overwrite
    )
    return [str(picture) for picture in pictures]


@click.command("export")
@click.argument("model")
@click.option(
    "--out", default="model.onnx", show_default=True, metavar="FILE", help="The ONNX file to write; it ends in .onnx."
)
@click.option(
    "--inputs",
    type=click.Choice(["auto", "features", "columns"]),
    default="auto",
    show_default=True,
    help="What the graph takes: a matrix of features, or the columns of the table that the model learned from.",
)
@click.option(
    "--confidence",
    type=float,
    metavar="P",
    help="Of calibrated regression: also write the outputs lower and upper, the ends of intervals such as 0.9.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file that daskkern did not write.")
@json_option
def export_command(model: str, out: str, inputs: str, confidence: float | None, overwrite: bool) -> dict[str, object]:
    """Write MODEL as an ONNX file, for runtimes without Python."""
    if Path(out).suffix.lower() != ".onnx":
        raise SpecError(f"got --out {out!r}; expected the name of a file that ends in .onnx")
    load_model(model).to_onnx(out, inputs, confidence=confidence, overwrite=overwrite)
    say(f"the model is in {out}")
    return {"out": out, "inputs": inputs}

"""``daskkern report`` and ``export``: an HTML report on a model, and a file that other runtimes predict with."""

from pathlib import Path

import click

from daskkern.cli.console import progress_bar, say
from daskkern.errors import SpecError
from daskkern.evaluation.raw_tables import rows_of
from daskkern.models import load_model
from daskkern.report import check_places, write_report


@click.command("report")
@click.argument("model")
@click.option("--test", metavar="STORE", help="Rows to score the model on; also a table with the training columns.")
@click.option(
    "--out",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The HTML file to write; it is self-contained.",
)
@click.option("--png", metavar="FOLDER", help="Also write the figures there, as PNG files.")
@click.option("--overwrite", is_flag=True, help="Replace existing files that daskkern did not write.")
def report_command(model: str, test: str | None, out: str, png: str | None, overwrite: bool) -> None:
    """Write a report on MODEL: scores, curves, spectrum, time, settings and environment."""
    check_places(out, png, overwrite=overwrite)
    fitted = load_model(model)
    if test is None:
        written = write_report(fitted, out, name=model, png=png, overwrite=overwrite)
    else:
        with rows_of(fitted, test) as rows, progress_bar() as bar:
            line = bar.add_task("scoring", total=rows.info.n_rows)
            written = write_report(
                fitted,
                out,
                name=model,
                test=rows,
                test_name=test,
                png=png,
                overwrite=overwrite,
                progress=lambda done, total: bar.update(line, completed=done, total=total),
            )
    say(f"the report is in {out}")
    if png is not None:
        say(f"{len(written)} pictures are in {png}")
    if not len(fitted.history_):
        say("note: the model was saved without a history, so the report has no curves")


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
@click.option("--overwrite", is_flag=True, help="Replace an existing file that daskkern did not write.")
def export_command(model: str, out: str, inputs: str, overwrite: bool) -> None:
    """Write MODEL as an ONNX file, for runtimes without Python."""
    if Path(out).suffix.lower() != ".onnx":
        raise SpecError(f"got --out {out!r}; expected the name of a file that ends in .onnx")
    load_model(model).to_onnx(out, inputs, overwrite=overwrite)
    say(f"the model is in {out}")

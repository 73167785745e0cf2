"""``daskkern score`` and ``daskkern predict``: apply a model to a store or table."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import get_args

import click

from daskkern.cli.console import InterruptedJobError, output_to_stderr, progress_bar, say, say_json, show_notes, table
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.cli.options.column_lists import column_list
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.standard_input import read_from_stdin
from daskkern.data.schema.encoding import UnknownChoice
from daskkern.errors import SpecError
from daskkern.evaluation.cubes import predict_cube
from daskkern.evaluation.metrics import Score
from daskkern.evaluation.predict import report_notes, write_predictions
from daskkern.evaluation.raw_tables import kind_of_place
from daskkern.evaluation.tables.formats import TableFormat, format_of
from daskkern.evaluation.tables.scoring import score_rows
from daskkern.evaluation.tables.tasks import ScoringPlace
from daskkern.models import KernelModel, load_model

_on_device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto takes a GPU where there is one.",
)
_on_threads = click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads on the CPU.  [default: all processors allowed]"
)


_on_unknown = click.option(
    "--unknown",
    type=click.Choice(get_args(UnknownChoice)),
    default="refuse",
    show_default=True,
    help="Categories that the training data lack, in columns of one feature for each: an error, or 0 in all of these; "
    "among dates, other texts: an error, or missing.",
)


@click.command("score")
@click.argument("model")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all measures.")
@click.option(
    "--weight", metavar="NAME", help="The column of a table with weights of its rows; a store brings its own."
)
@click.option("--details", is_flag=True, help="Add the confusion matrix and the calibration of probabilities.")
@_on_unknown
@_on_device
@_on_threads
@cluster_options
def score_command(
    model: str,
    store: str,
    as_json: bool,
    weight: str | None,
    details: bool,
    unknown: UnknownChoice,
    device: str,
    threads: int | None,
    where: ClusterRequest,
) -> None:
    """Score MODEL on STORE, in one pass: accuracy, error and ROC-AUC, or RMSE, MAE and R2.

    Where rows have weights, all of these are weighted.

    STORE may also be a table with the columns of the training table, such as a .csv file, or - for CSV from stdin.
    """
    fitted = load_model(model)
    quiet = output_to_stderr() if as_json else nullcontext()
    with (
        quiet,
        read_from_stdin(store, elsewhere=where.named) as rows,
        _placed(fitted, where, device, threads) as (placed, place),
        progress_bar() as bar,
    ):
        line = bar.add_task("scoring", total=None)
        score, notes = score_rows(
            placed, rows, place, lambda done, total: bar.update(line, completed=done, total=total), unknown, weight
        )
    if as_json:
        say_json(score.as_dict())
    else:
        say(describe(score, fitted.n_outputs if fitted.task == "multilabel" else 0))
        show_notes(notes)
        if details:
            show_details(score)


@click.command("predict")
@click.argument("model")
@click.argument("store")
@click.option(
    "--out", required=True, metavar="PLACE",
    help="Where to write: a path or URL that ends in .parquet, .csv, .csv.gz, .arrow or .zarr (also without ending).",
)  # fmt: skip
@column_list("--keep", text="Columns to carry through, such as id,day.")
@column_list("--partition-by", text="Make PLACE a folder, with a folder for each value of columns.")
@click.option("--rows-per-file", type=click.IntRange(1), metavar="N", help="Make PLACE a folder of files of N rows.")
@click.option("--scores", is_flag=True, help="Add the scores.")
@click.option("--std", is_flag=True, help="Add standard deviations, of a calibrated regression.")
@click.option(
    "--confidence", type=float, metavar="P",
    help="Add intervals, or sets of labels, that hold the true value with probability P, of a calibrated model.",
)  # fmt: skip
@_on_unknown
@click.option("--overwrite", is_flag=True, help="Replace predictions that exist.")
@_on_device
@_on_threads
@json_option
@cluster_options
def predict_command(
    model: str,
    store: str,
    out: str,
    keep: tuple[str, ...],
    partition_by: tuple[str, ...],
    rows_per_file: int | None,
    scores: bool,
    std: bool,
    confidence: float | None,
    unknown: UnknownChoice,
    overwrite: bool,
    device: str,
    threads: int | None,
    where: ClusterRequest,
) -> dict[str, object]:
    """Predict every row of STORE and write the predictions, in bounded memory.

    STORE may also be a table with the columns of the training table, such as a .csv file, - for CSV from stdin, or a
    Zarr store of xarray with the variables of the training Dataset. After a kill, the same command continues in a
    folder of files, and otherwise starts again; no row is written twice.
    """
    fitted = load_model(model)
    known = format_of(out)
    store = click.get_current_context().with_resource(read_from_stdin(store, elsewhere=where.named))
    rows = kind_of_place(store)
    if rows is None:
        given = {
            "--keep": keep, "--partition-by": partition_by, "--rows-per-file": rows_per_file, "--scores": scores,
            "--std": std, "--confidence": confidence, "--unknown": unknown != "refuse",
        }  # fmt: skip
        return _predict_cells(
            fitted.on(device), store, out, known, [name for name, value in given.items() if value], overwrite
        )
    with _placed(fitted, where, device, threads) as (placed, place), progress_bar() as bar:
        line = bar.add_task("predicting", total=None)
        try:
            report = write_predictions(
                placed,
                rows,
                out,
                keep=keep,
                partition_by=partition_by,
                rows_per_file=rows_per_file,
                scores=scores,
                std=std,
                confidence=confidence,
                unknown=unknown,
                overwrite=overwrite,
                progress=lambda done, total: bar.update(line, completed=done, total=total),
                client=place.client,
                device=device,
                threads=threads,
            )
        except KeyboardInterrupt:
            if not partition_by and rows_per_file is None:
                raise
            raise InterruptedJobError(f"interrupted; the same command continues the predictions in {out}") from None
    say(f"{report.n_rows:,} predictions are in {out} ({report.what})")
    show_notes(report_notes(report))
    return {"out": out, **asdict(report)}


def _predict_cells(
    model: KernelModel, store: str, out: str, known: TableFormat | None, others: Sequence[str], overwrite: bool
) -> dict[str, object]:
    if known not in (None, "zarr"):
        raise SpecError(f"got --out {out} for a Zarr store of xarray; its predictions are another: name it with .zarr")
    if others:
        raise SpecError(f"got {others[0]} with a Zarr store of xarray, whose cells have no columns; leave it out")
    n_cells, name = predict_cube(model, store, out, overwrite=overwrite)
    say(f"{n_cells:,} cells are in {out} (a Zarr store for xarray; the variable is {name})")
    return {"out": out, "n_cells": n_cells, "variable": name}


@contextmanager
def _placed(
    model: KernelModel, where: ClusterRequest, device: str, threads: int | None
) -> Iterator[tuple[KernelModel, ScoringPlace]]:
    """Yield the model and where it computes: on the workers that were asked for, or in this process."""
    if not (where.named or where.workers or where.gpus or where.tls):
        yield model.on(device), ScoringPlace(None, device, threads)
        return
    if threads is not None:
        raise SpecError("got --threads with a cluster, whose tasks use one thread each; give one of them")
    with where.client() as client:
        yield model, ScoringPlace(client, device)


def describe(score: Score, n_labels: int = 0) -> str:
    """Return the score as one line of text; of rows that have `n_labels` labels each, where that is not 0."""
    if score.accuracy is not None and score.error is not None:
        which = f" of all {n_labels} labels of a row" if n_labels else ""
        line = f"{score.rows}: accuracy{which} {score.accuracy:.2%}, error {score.error:.2%}"
        if score.roc_auc is not None:
            line += f", ROC-AUC {score.roc_auc:.4f}"
        if score.log_loss is not None and score.calibration_error is not None:
            line += f", log loss {score.log_loss:.4g}, calibration error {score.calibration_error:.2%}"
        return line
    if score.rmse is None or score.mae is None or score.r2 is None:
        raise AssertionError("a score has accuracy, or the errors of a regression")
    r2 = "undefined: a target has the same value in all rows" if math.isnan(score.r2) else f"{score.r2:.4f}"
    return f"{score.rows}: RMSE {score.rmse:.6g}, MAE {score.mae:.6g} (target units), R2 {r2}"


def show_details(score: Score) -> None:
    """Print the confusion matrix and the calibration, where the score has them."""
    if score.confusion is not None and score.classes is not None:
        labels = [str(label) for label in score.classes]
        rows = [(f"true {label}", *map(str, counts)) for label, counts in zip(labels, score.confusion, strict=True)]
        table("Confusion matrix: a row for each true class, a column for each predicted class", ("", *labels), rows)
        if score.unknown:
            say(f"{score.unknown:,} rows have labels that the model does not know; they count as errors")
    if score.calibration is not None:
        rows = [
            (
                f"{part.lower:.0%} to {part.upper:.0%}",
                f"{part.n_rows:,}",
                f"{part.confidence:.1%}",
                f"{part.accuracy:.1%}",
            )
            for part in score.calibration
        ]
        table("Calibration of the most probable class", ("probability", "rows", "mean probability", "accuracy"), rows)

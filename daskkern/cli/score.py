"""``daskkern score`` and ``daskkern predict``: apply a model to a store or table."""

import click

from daskkern.cli.console import progress_bar, say, say_json, show_notes, table
from daskkern.data.cubes.cube_stores import is_cube_store
from daskkern.data.storage.unseen import unseen_notes
from daskkern.data.transactions.atomic import check_destination
from daskkern.evaluation.cubes import predict_cube
from daskkern.evaluation.metrics import Score
from daskkern.evaluation.predict import FORMAT, predict_store
from daskkern.evaluation.raw_tables import rows_of
from daskkern.evaluation.score import score_store
from daskkern.models import load_model

_on_device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    help="Where to compute; auto uses a GPU if there is one.",
)
_on_threads = click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads on the CPU.  [default: all processors allowed]"
)


@click.command("score")
@click.argument("model")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all measures.")
@click.option("--details", is_flag=True, help="Add the confusion matrix and the calibration of probabilities.")
@_on_device
@_on_threads
def score_command(model: str, store: str, as_json: bool, details: bool, device: str, threads: int | None) -> None:
    """Score MODEL on STORE, in one pass: accuracy, error and ROC-AUC, or RMSE, MAE and R2.

    STORE may also be a table with the columns of the training table, such as a .csv file.
    """
    fitted = load_model(model).on(device)
    with rows_of(fitted, store) as rows, progress_bar() as bar:
        line = bar.add_task("scoring", total=rows.info.n_rows)
        score = score_store(
            fitted, rows, lambda done, total: bar.update(line, completed=done, total=total), threads=threads
        )
        notes = () if as_json else unseen_notes(rows)
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
@click.option("--out", required=True, metavar="STORE", help="Where to write the predictions.")
@click.option("--overwrite", is_flag=True, help="Replace predictions that exist.")
@_on_device
@_on_threads
def predict_command(model: str, store: str, out: str, overwrite: bool, device: str, threads: int | None) -> None:
    """Predict every row of STORE and write the predictions, in bounded memory.

    STORE may also be a table with the columns of the training table, such as a .csv file, or a Zarr store of xarray
    with the variables of the training Dataset.
    """
    fitted = load_model(model).on(device)
    if is_cube_store(store):
        n_cells, name = predict_cube(fitted, store, out, overwrite=overwrite)
        say(f"{n_cells:,} cells are in {out} (a Zarr store for xarray; the variable is {name})")
        return
    check_destination(out, kind=FORMAT, overwrite=overwrite)
    with rows_of(fitted, store, out, targets=False) as rows, progress_bar() as bar:
        line = bar.add_task("predicting", total=rows.info.n_rows)
        note = predict_store(
            fitted,
            rows,
            out,
            overwrite=overwrite,
            progress=lambda done, total: bar.update(line, completed=done, total=total),
            threads=threads,
        )
        n_rows, notes = rows.info.n_rows, unseen_notes(rows)
    say(f"{n_rows:,} predictions are in {out} ({note})")
    show_notes(notes)


def describe(score: Score, n_labels: int = 0) -> str:
    """Return the score as one line of text; of rows that have `n_labels` labels each, where that is not 0."""
    if score.accuracy is not None and score.error is not None:
        which = f" of all {n_labels} labels of a row" if n_labels else ""
        line = f"{score.n_rows:,} rows: accuracy{which} {score.accuracy:.2%}, error {score.error:.2%}"
        if score.roc_auc is not None:
            line += f", ROC-AUC {score.roc_auc:.4f}"
        if score.log_loss is not None and score.calibration_error is not None:
            line += f", log loss {score.log_loss:.4g}, calibration error {score.calibration_error:.2%}"
        return line
    return f"{score.n_rows:,} rows: RMSE {score.rmse:.6g}, MAE {score.mae:.6g} (target units), R2 {score.r2:.4f}"


def show_details(score: Score) -> None:
    """Print the confusion matrix and the calibration, where the score has them."""
    if score.confusion is not None and score.classes is not None:
        labels = [str(label) for label in score.classes]
        rows = [(f"true {label}", *map(str, counts)) for label, counts in zip(labels, score.confusion, strict=True)]
        table("Rows by true and predicted class", ("", *labels), rows)
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
        table("Calibration by the largest probability", ("probability", "rows", "mean probability", "right"), rows)

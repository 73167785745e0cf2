"""``daskkern ingest``: files into a store."""

import click

from daskkern.cli.console import progress_bar, say
from daskkern.data.ingest import IngestReport, ingest


@click.command("ingest")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", required=True, metavar="STORE", help="The store to write.")
@click.option("--target", multiple=True, metavar="NAME", help="Target column(s) of a table, or entry of an npz.")
@click.option("--task", default="auto", show_default=True, help="auto, classification or regression.")
@click.option("--drop", multiple=True, metavar="NAME", help="Column to leave out.")
@click.option("--weight", metavar="NAME", help="Column with sample weights.")
@click.option("--scale", default="none", show_default=True, help="standard, minmax or none; recorded, applied on load.")
@click.option("--chunk-rows", type=int, metavar="N", help="Rows of a chunk.  [default: about 4096]")
@click.option("--split", type=float, metavar="SHARE", help="Share of the rows that goes to --out-test, such as 0.2.")
@click.option("--out-test", metavar="STORE", help="Store for the test rows: those split off, or X_test of an npz.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split.")
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
def command(
    sources: tuple[str, ...],
    out: str,
    target: tuple[str, ...],
    task: str,
    drop: tuple[str, ...],
    weight: str | None,
    scale: str,
    chunk_rows: int | None,
    split: float | None,
    out_test: str | None,
    seed: int,
    overwrite: bool,
) -> None:
    """Turn files (.npz, a .npy pair, .csv, .parquet) into a store, in bounded memory."""
    with progress_bar() as bar:
        line = bar.add_task("ingesting", total=None)
        report = ingest(
            sources,
            out,
            target=target or None,
            task=task,
            scale=scale,
            split=split,
            out_test=out_test,
            chunk_rows=chunk_rows,
            drop=drop,
            weight=weight,
            seed=seed,
            overwrite=overwrite,
            progress=lambda done, total: bar.update(line, completed=done, total=total),
        )
    tell(report)


def tell(report: IngestReport) -> None:
    """Print what was made of the sources."""
    say(f"{report.path}: {report.n_rows:,} rows x {report.n_features} features")
    if report.test_path is not None:
        say(f"{report.test_path}: {report.n_test_rows or 0:,} rows")
    say(f"task: {report.task or 'none'} ({report.task_reason})")
    if report.classes is not None:
        shown = ", ".join(repr(label) for label in report.classes[:10])
        say(f"classes: {len(report.classes)} ({shown}{', ...' if len(report.classes) > 10 else ''})")
    for note in report.notes:
        say(f"note: {note}")

"""``daskkern ingest``: convert files to a store."""

from dataclasses import asdict

import click

from daskkern.cli.console import say, show_notes
from daskkern.cli.options.cluster_options import ClusterRequest, worker_options
from daskkern.cli.options.column_lists import column_list
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.standard_input import each_from_stdin
from daskkern.cli.output.rows_progress import rows_progress
from daskkern.data.ingest import IngestReport, ingest


@click.command("ingest")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", required=True, metavar="STORE", help="The store to write.")
@column_list("--target", text="Target column(s) of a table, or entry of an npz.")
@click.option(
    "--task",
    default="auto",
    show_default=True,
    help="Whether targets are labels of classes or quantities; auto decides by their values.",
)
@column_list("--drop", text="Columns to leave out.")
@click.option("--weight", metavar="NAME", help="Column with sample weights.")
@click.option(
    "--scale",
    default="none",
    show_default=True,
    help="Scaling of the features, recorded in the store and applied whenever rows are read.",
)
@click.option("--chunk-rows", type=int, metavar="N", help="Rows per chunk.  [default: about 4096]")
@click.option("--split", type=float, metavar="SHARE", help="Share of the rows written to --out-test, such as 0.2.")
@click.option("--out-test", metavar="STORE", help="Store for the test rows: those of --split, or X_test of an npz.")
@click.option("--split-validation", type=float, metavar="SHARE", help="Share of the rows written to --out-validation.")
@click.option("--out-validation", metavar="STORE", help="Store for the validation rows.")
@click.option(
    "--stratify/--no-stratify", default=True, show_default=True, help="Split every class in the same proportions."
)
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Write training rows in random order.  [default: if a target is sorted]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the split and the shuffle.")
@click.option("--features", metavar="KEY", help="Entry with the features in HDF5 and Zarr files.  [default: X]")
@click.option(
    "--index-base", type=click.Choice(["0", "1"]), help="First feature number in SVMLight files.  [default: guess]"
)
@click.option(
    "--categorical",
    default="auto",
    show_default=True,
    help="What columns of text become: a feature for each category (onehot), codes (for many categories) or numbers in "
    "the order of the texts (ordinal); auto is onehot where they look like categories.",
)
@click.option(
    "--missing",
    default="auto",
    show_default=True,
    help="What missing values become; constant is 0, and auto the mean, in tables with gaps. Empty texts get a "
    "category of their own, but the most frequent one with mean and most_frequent.",
)
@column_list("--columns", text="Columns of a table to use as features; others are not read.")
@click.option(
    "--where",
    metavar="FILTER",
    help="Rows of Parquet files to take, such as \"day >= 3 and region = 'north'\"; see docs/sources.md.",
)
@click.option("--like", metavar="STORE", help="Give the rows the columns, encoding, scaling and classes of this store.")
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@json_option
@worker_options
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
    split_validation: float | None,
    out_validation: str | None,
    stratify: bool,
    shuffle: bool | None,
    seed: int,
    features: str | None,
    index_base: str | None,
    categorical: str,
    missing: str,
    columns: tuple[str, ...],
    where: str | None,
    like: str | None,
    overwrite: bool,
    running: ClusterRequest,
) -> dict[str, object]:
    """Convert files to a store, in bounded memory.

    Reads .npz, a pair of .npy, .csv, Parquet, Arrow, ORC, JSON lines, HDF5, AnnData, Zarr and SVMLight files; Parquet
    also from folders with partitions (day=1/) and as Delta Lake or Iceberg tables. Tables may be behind URLs such as
    s3://bucket/lake, and - is a CSV table from stdin. After a kill, the same command continues where it stopped.
    """
    with (
        each_from_stdin(sources, elsewhere=running.named) as places,
        running.requested() as client,
        rows_progress("ingesting") as progress,
    ):
        report = ingest(
            places,
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
            progress=progress,
            shuffle=shuffle,
            stratify=stratify,
            split_validation=split_validation,
            out_validation=out_validation,
            features=features,
            index_base=None if index_base is None else int(index_base),
            categorical=categorical,
            missing=missing,
            like=like,
            client=client,
            columns=columns or None,
            where=where,
        )
    print_report(report)
    return asdict(report)


def print_report(report: IngestReport) -> None:
    """Print what was ingested: stores, rows, task, classes and notes."""
    say(f"{report.path}: {report.n_rows:,} rows x {report.n_features} features")
    if report.test_path is not None:
        say(f"{report.test_path}: {report.n_test_rows or 0:,} rows")
    if report.validation_path is not None:
        say(f"{report.validation_path}: {report.n_validation_rows or 0:,} rows")
    say(f"task: {report.task or 'none'} ({report.task_reason})")
    if report.classes is not None:
        shown = ", ".join(repr(label) for label in report.classes[:10])
        say(f"classes: {len(report.classes)} ({shown}{', ...' if len(report.classes) > 10 else ''})")
    show_notes(report.notes)

"""``daskkern check``: verify every chunk of a store."""

from contextlib import nullcontext

import click

from daskkern.cli.console import output_to_stderr, progress_bar, say, say_json
from daskkern.cli.options.cluster_options import ClusterRequest, worker_options
from daskkern.data.storage.check import CheckReport, check_store
from daskkern.data.storage.check_parallel import check_store_on
from daskkern.errors import StoreError


@click.command("check")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="How many findings to list.")
@worker_options
def command(store: str, as_json: bool, most: int, running: ClusterRequest) -> None:
    """Read every chunk of STORE and report what is missing, damaged or inconsistent; exit with 1 if anything is.

    With --workers or a running cluster, workers share the reading. They find the same.
    """
    quiet = output_to_stderr() if as_json else nullcontext()
    with quiet, running.requested() as client, progress_bar() as bar:
        line = bar.add_task("checking", total=None)

        def show(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total)

        if client is None:
            report = check_store(store, progress=show)
        else:
            report = check_store_on(client, store, progress=show)
    if as_json:
        say_json(as_dict(report, most))
    else:
        for text in lines(report, most):
            say(text)
    if not report.is_whole:
        raise StoreError(f"the store {report.path} is damaged; the first finding: {report.findings[0].sentence}")


def as_dict(report: CheckReport, most: int) -> dict[str, object]:
    """Return the report as JSON values, with at most `most` findings."""
    return {
        "path": report.path,
        "whole": report.is_whole,
        "n_chunks": report.n_chunks,
        "n_bytes": report.n_bytes,
        "seconds": report.seconds,
        "n_findings": len(report.findings),
        "findings": [{"key": finding.key, "sentence": finding.sentence} for finding in report.findings[:most]],
    }


def lines(report: CheckReport, most: int) -> list[str]:
    """Return the report as lines of text, with at most `most` findings."""
    read = f"{report.n_chunks:,} chunks, {report.n_bytes:,} bytes read in {report.seconds:.2g} s"
    if report.is_whole:
        return [f"whole: {read}"]
    rest = len(report.findings) - most
    return [
        f"damaged: {read}",
        *(finding.sentence for finding in report.findings[:most]),
        *([f"and {rest} more"] if rest > 0 else []),
    ]

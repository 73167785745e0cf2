"""Entry point of the command line, ``daskkern COMMAND``."""

import sys
from collections.abc import Sequence

import click

from daskkern import __version__
from daskkern.cli import check, demo, doctor, info, ingest, shuffle
from daskkern.cli.console import run
from daskkern.cli.fit import fit_command
from daskkern.cli.fits import COMMANDS as FIT_COMMANDS
from daskkern.cli.plan import plan_command
from daskkern.cli.report import report_command
from daskkern.cli.score import predict_command, score_command
from daskkern.cli.systems import compare_command, sweep_command, systems_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskkern")
@click.option("--debug", is_flag=True, help="Show tracebacks and Dask's log.")
def cli(debug: bool) -> None:
    """Kernel machines on data bigger than memory, on a laptop or on a Dask cluster."""
    del debug  # commands read it from the context


for _command in (
    demo.command,
    ingest.command,
    info.command,
    check.command,
    shuffle.command,
    plan_command,
    fit_command,
    score_command,
    predict_command,
    report_command,
    *FIT_COMMANDS,
    systems_command,
    compare_command,
    sweep_command,
    doctor.command,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 on success, 1 when the job failed, 2 when the command line is wrong."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = ["--debug"] * debug + [
        word for word in words if word != "--debug"
    ]  # --debug is accepted anywhere on the line
    sys.exit(run(lambda: cli.main(words, prog_name="daskkern", standalone_mode=False), debug))


if __name__ == "__main__":
    main()

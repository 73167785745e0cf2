"""Entry point of the command line, ``daskkern COMMAND``."""

import difflib
import importlib
import sys
from collections.abc import Sequence

import click

from daskkern import __version__
from daskkern.backend.plugins import installed
from daskkern.cli.console import quieted, run
from daskkern.cli.help.light_commands import LightCommand
from daskkern.cli.help.records import command_record, stored_records

COMMANDS = {
    "cancel": (
        "daskkern.cli.fits:cancel_command",
        "End FIT after its current step; the model so far is saved, and a checkpoint to --resume from.",
    ),
    "check": (
        "daskkern.cli.check:command",
        "Read every chunk of STORE and report what is missing, damaged or inconsistent; exit with 1 if anything is.",
    ),
    "compare": (
        "daskkern.cli.systems:compare_command",
        "Fit several systems to STORE, each within the same time limit, and show their errors.",
    ),
    "demo": (
        "daskkern.cli.demo:command",
        "Ingest, fit on a local cluster, score and save, on 1,797 handwritten digits.",
    ),
    "doctor": (
        "daskkern.cli.doctor:command",
        "Report what this machine - with --scheduler or --workers also a cluster - can do, and what is missing.",
    ),
    "explain": (
        "daskkern.cli.explain:command",
        "Show what the predictions of MODEL depend on, at random rows of STORE.",
    ),
    "export": ("daskkern.cli.report:export_command", "Write MODEL as an ONNX file, for runtimes without Python."),
    "fit": ("daskkern.cli.fit:fit_command", "Train a kernel machine on STORE and write the model."),
    "info": (
        "daskkern.cli.info:command",
        "Show what STORE holds: sizes, classes or targets, chunks, statistics and where it came from.",
    ),
    "ingest": ("daskkern.cli.ingest:command", "Convert files to a store, in bounded memory."),
    "logs": (
        "daskkern.cli.logs:logs_command",
        "Print the events of FIT and what its workers have logged, with the time, oldest first.",
    ),
    "plan": (
        "daskkern.cli.plan:plan_command",
        "Show how much memory one rank of a fit would need, how long the fit would take, and its cost in worker-hours.",
    ),
    "predict": (
        "daskkern.cli.score:predict_command",
        "Predict every row of STORE and write the predictions, in bounded memory.",
    ),
    "report": (
        "daskkern.cli.report:report_command",
        "Write a report on MODEL: scores, curves, spectrum, time, settings and environment.",
    ),
    "resume": (
        "daskkern.cli.resume:resume_command",
        "Continue the fit of a checkpoint PLACE, or --all unfinished fits of a folder or URL.",
    ),
    "score": (
        "daskkern.cli.score:score_command",
        "Score MODEL on STORE, in one pass: accuracy, error and ROC-AUC, or RMSE, MAE and R2.",
    ),
    "shuffle": ("daskkern.cli.shuffle:command", "Write the rows of STORE in random order, in bounded memory."),
    "status": ("daskkern.cli.fits:status_command", "Show the fits of a cluster, or one FIT."),
    "sweep": (
        "daskkern.cli.systems:sweep_command",
        "Search length scale and penalty for STORE; rows are read, and distances computed, once for the whole grid.",
    ),
    "systems": ("daskkern.cli.systems:systems_command", "List the published systems, which can be fitted by name."),
    "watch": ("daskkern.cli.fits:watch_command", "Follow FIT until it ends; Ctrl-C stops following, not the fit."),
}
"""For each command, where it is and what it does, so that the list of all imports none."""

TOPICS = {
    "Data": ("ingest", "info", "check", "shuffle"),
    "Models": ("fit", "plan", "resume", "score", "predict", "explain", "report", "export"),
    "Methods": ("sweep", "compare", "systems"),
    "Fits on a cluster": ("status", "watch", "logs", "cancel"),
    "This machine": ("demo", "doctor"),
}
"""Headings of the list of commands."""

PLUGINS = ("daskkern.kernels", "daskkern.losses", "daskkern.solvers", "daskkern.selectors")
"""Groups of entry points whose names are values of options."""

SILENT = ("demo", "export", "fit", "ingest", "predict", "report", "resume", "shuffle")
"""Commands that write something, and with --quiet print errors only; the others print what they were asked for."""


def whole_command(name: str) -> click.Command:
    """Import and return a command."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


class Commands(click.Group):
    """A group whose commands are imported when they are called, so that each starts without what the others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return a command by its name.

        Raises
        ------
        click.UsageError
            Where there is none of this name.
        """
        if cmd_name not in COMMANDS:
            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "daskkern --help lists them"
            raise click.UsageError(f"command {cmd_name!r} is unknown; {hint}", ctx)
        record = stored_records()[cmd_name]
        if any(item.name == "solver" for item in record.parameters) and any(map(installed, PLUGINS)):
            record = command_record(whole_command(cmd_name), {})  # its help names what is installed
        return LightCommand(record, lambda: whole_command(cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of all commands, by topic."""
        del ctx
        width = max(map(len, COMMANDS))
        for topic, names in TOPICS.items():
            with formatter.section(topic):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskkern")
@click.option("--debug", is_flag=True, help="Show tracebacks and Dask's log.")
@click.option("--quiet", "-q", is_flag=True, help="Print results and errors only: no progress, no notes.")
@click.pass_context
def cli(context: click.Context, debug: bool, quiet: bool) -> None:
    """Kernel machines on data bigger than memory, on a laptop or on a Dask cluster."""
    del debug  # commands read it from the context
    if quiet:
        context.with_resource(quieted(everything=context.invoked_subcommand in SILENT))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 on success, 1 when the job failed, 2 when the command line is wrong."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    end = words.index("--") if "--" in words else len(words)
    anywhere = [word for word in words[:end] if word in ("--debug", "--quiet", "-q")]  # accepted anywhere on the line
    words = [*anywhere, *(word for word in words[:end] if word not in anywhere), *words[end:]]
    sys.exit(run(lambda: cli.main(words, prog_name="daskkern", standalone_mode=False), debug))


if __name__ == "__main__":
    main()

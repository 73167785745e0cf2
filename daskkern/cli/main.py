"""Entry point of the command line, ``daskkern COMMAND``."""

import difflib
import importlib
import sys
from collections.abc import Sequence

import click

from daskkern import __version__
from daskkern.cli.console import run

_COMMANDS = {
    "cancel": "daskkern.cli.fits:cancel_command",
    "check": "daskkern.cli.check:command",
    "compare": "daskkern.cli.systems:compare_command",
    "demo": "daskkern.cli.demo:command",
    "doctor": "daskkern.cli.doctor:command",
    "fit": "daskkern.cli.fit:fit_command",
    "info": "daskkern.cli.info:command",
    "ingest": "daskkern.cli.ingest:command",
    "logs": "daskkern.cli.fits:logs_command",
    "plan": "daskkern.cli.plan:plan_command",
    "predict": "daskkern.cli.score:predict_command",
    "report": "daskkern.cli.report:report_command",
    "score": "daskkern.cli.score:score_command",
    "shuffle": "daskkern.cli.shuffle:command",
    "status": "daskkern.cli.fits:status_command",
    "sweep": "daskkern.cli.systems:sweep_command",
    "systems": "daskkern.cli.systems:systems_command",
    "watch": "daskkern.cli.fits:watch_command",
}


class Commands(click.Group):
    """A group whose commands are imported when they are called, so that each starts without what the others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return a command by its name.

        Raises
        ------
        click.UsageError
            Where there is none of this name.
        """
        if cmd_name not in _COMMANDS:
            close = difflib.get_close_matches(cmd_name, _COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "daskkern --help lists them"
            raise click.UsageError(f"there is no command {cmd_name!r}; {hint}", ctx)
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskkern")
@click.option("--debug", is_flag=True, help="Show tracebacks and Dask's log.")
def cli(debug: bool) -> None:
    """Kernel machines on data bigger than memory, on a laptop or on a Dask cluster."""
    del debug  # commands read it from the context


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

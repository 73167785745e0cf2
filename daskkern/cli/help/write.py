"""``python -m daskkern.cli.help.write``: write ``commands.json`` from the commands as they are."""

import json
from collections.abc import Iterable
from dataclasses import asdict

import click

from daskkern.cli.help.records import PLACE, CommandRecord, ParameterRecord, command_record
from daskkern.cli.main import COMMANDS, whole_command
from daskkern.features import KINDS
from daskkern.kernels import KERNELS
from daskkern.landmarks import SELECTORS
from daskkern.losses import LOSSES
from daskkern.solvers import SOLVERS
from daskkern.systems import SYSTEMS
from daskkern.training.run.settings import SCALES


def completed_values() -> dict[str, tuple[str, ...]]:
    """Return the values that shells complete, by the name of the parameter."""
    return {
        "kernel": ("auto", *KERNELS),
        "loss": tuple(LOSSES),
        "solver": ("auto", *SOLVERS),
        "system": tuple(SYSTEMS),
        "selector": tuple(SELECTORS),
        "feature_kind": tuple(KINDS),
        "scale": (*SCALES, "none"),
    }


def declared_records() -> list[CommandRecord]:
    """Return the records of all commands, which are imported."""
    values = completed_values()
    return [command_record(whole_command(name), {} if name == "ingest" else values) for name in COMMANDS]


def as_json(records: Iterable[CommandRecord]) -> str:
    """Return records as JSON, one parameter a line, without what has its default."""
    usual = ParameterRecord("")
    blocks = []
    for record in records:
        lines = ",\n".join(
            "   " + json.dumps({key: value for key, value in asdict(item).items() if value != getattr(usual, key)})
            for item in record.parameters
        )
        head = f'"name": {json.dumps(record.name)}, "help": {json.dumps(record.help)}'
        blocks.append(f' {{{head}, "parameters": [\n{lines}\n ]}}')
    return "[\n" + ",\n".join(blocks) + "\n]\n"


def main() -> None:
    """Write the file."""
    PLACE.write_text(as_json(declared_records()), encoding="utf-8")
    click.echo(f"{PLACE}: {len(COMMANDS)} commands")


if __name__ == "__main__":
    main()

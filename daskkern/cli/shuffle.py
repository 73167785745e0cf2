"""``daskkern shuffle``: rewrite a store with its rows in random order."""

import click

from daskkern.cli.console import progress_bar, say
from daskkern.cli.values import parse_bytes
from daskkern.data.shuffle.shuffle import shuffle_store


@click.command("shuffle")
@click.argument("store")
@click.option("--out", required=True, metavar="STORE", help="The store to write; with --overwrite it may be STORE.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order.")
@click.option("--memory", default="256MB", show_default=True, metavar="BYTES", help="Memory that the shuffle may use.")
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
def command(store: str, out: str, seed: int, memory: str, overwrite: bool) -> None:
    """Write the rows of STORE in random order, in bounded memory. Temporary files take as much disk as the rows."""
    with progress_bar() as bar:
        line = bar.add_task("shuffling", total=None)
        shuffled = shuffle_store(
            store,
            out,
            seed=seed,
            memory=parse_bytes(memory),
            overwrite=overwrite,
            progress=lambda done, total: bar.update(line, completed=done, total=total),
        )
    say(f"{shuffled.path}: {shuffled.info.n_rows:,} rows in a random order (seed {seed})")

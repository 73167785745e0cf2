"""``daskkern shuffle``: rewrite a store with its rows in random order."""

from functools import partial

import click

from daskkern.cli.console import say
from daskkern.cli.options.cluster_options import ClusterRequest, worker_options
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.values import parse_bytes
from daskkern.cli.output.rows_progress import rows_progress
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.shuffle.shuffle import shuffle_store


@click.command("shuffle")
@click.argument("store")
@click.option("--out", required=True, metavar="STORE", help="The store to write; with --overwrite it may be STORE.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order.")
@click.option(
    "--memory",
    default="256MB",
    show_default=True,
    metavar="SIZE",
    help="Memory that the shuffle, or each worker, may use, such as 4GB.",
)
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@json_option
@worker_options
def command(
    store: str, out: str, seed: int, memory: str, overwrite: bool, running: ClusterRequest
) -> dict[str, object]:
    """Write the rows of STORE in random order, in bounded memory. Temporary files take as much disk as the rows.

    With --workers or a running cluster, workers share the work, and each may use the memory. The order is the same. To
    a URL they need no disk: temporary objects below it take as much space as the rows. After a kill, the same command
    continues there.
    """
    budget = parse_bytes(memory)
    with running.requested() as client, rows_progress("shuffling", "opening the store") as tell:

        def moved(done: int, total: int) -> None:
            tell(done // 2, total // 2)  # each row is moved twice

        shuffle = shuffle_store if client is None else partial(shuffle_store_on, client)
        shuffled = shuffle(store, out, seed=seed, memory=budget, overwrite=overwrite, progress=moved)
    say(f"{shuffled.path}: {shuffled.info.n_rows:,} rows in a random order (seed {seed})")
    return {"path": str(shuffled.path), "n_rows": shuffled.info.n_rows, "seed": seed}

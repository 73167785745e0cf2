"""Cost of monitoring: the same fit unmonitored, with the page on the scheduler, and with open pages.

    python -m benchmarks monitoring --out benchmarks/results-monitoring.json --check

The variants take turns, in an order that rotates every round, on one cluster:

- ``silent``: no page and no metrics on the scheduler; ranks send no batches and no reports of their memory.
- ``closed``: the default: page and metrics are there, and nobody looks.
- ``open``: as `closed`, with `--viewers` pages open and a request to ``/metrics`` every 10 s.

A viewer is a web socket in a process of its own that receives the page's messages and draws nothing: drawing is the
work of the viewer's machine.

The cost is given in processor time, which is checked, and in seconds of the epochs, whose variation over rounds is
larger than the effect. Processor time is that of the process of the scheduler and the client, which receive the events,
and of sending them in the ranks' own threads. A share is the difference between two variants of the same round, as a
median over rounds, relative to the processor time of all processes of the fit. The writes of the workers' event loops,
a few short messages a second, are not included: they exchange sums, too, a hundred times as often.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from distributed import Client, LocalCluster
from figures import Row, Run, add, today
from products.machine import OthersLoad, describe_machine, versions

import daskkern
from daskkern.backend.concurrency import cpu_count
from daskkern.basis import Landmarks
from daskkern.cluster.scheduler.client import install_fits
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.install_dashboard import hide_fits, show_fits
from daskkern.training.run import on_cluster
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

ALLOWED_SHARE = 0.005
_VIEWER = """
import asyncio, sys, urllib.request
from bokeh.util.token import generate_jwt_token, generate_session_id
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

async def metrics(address):
    while True:
        await asyncio.to_thread(lambda: urllib.request.urlopen(address + "/metrics").read())
        await asyncio.sleep(10)

async def look(address):
    place = address.replace("http://", "ws://") + "/kernel-fits/ws"
    names = ["bokeh", generate_jwt_token(generate_session_id())]
    socket = await websocket_connect(HTTPRequest(place, headers={"Origin": address}), subprotocols=names)
    await socket.read_message()
    print("connected", flush=True)
    while await socket.read_message() is not None:
        pass

async def main(address, viewers):
    await asyncio.gather(metrics(address), *(look(address) for _ in range(viewers)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@contextlib.contextmanager
def silent(client: Client) -> Iterator[None]:
    """Disable page and metrics inside the context, and let ranks report whole epochs only."""
    hide_fits(client)
    client.run(_silence_events, True)
    try:
        with mock.patch.object(on_cluster, "show_fits", install_fits):
            yield
    finally:
        client.run(_silence_events, False)


def _silence_events(quiet: bool = True) -> None:
    """Disable or enable the batch events and reports of the ranks of this worker, and time their sending."""
    from daskkern.cluster.gang.rank import _EventSender
    from daskkern.events import BatchFinished, RankReported

    sender: Any = _EventSender
    sender.loud = getattr(sender, "loud", sender.__call__)
    sender.seconds = 0.0
    loud = sender.loud

    def timed(self: Any, event: Any) -> None:
        begun = time.thread_time()
        if not quiet or not isinstance(event, BatchFinished | RankReported):
            loud(self, event)
        sender.seconds += time.thread_time() - begun

    sender.__call__ = timed


def _used() -> tuple[float, float]:
    """Return the processor seconds that ranks of this worker spent sending events, and those of the whole worker."""
    from daskkern.cluster.gang.rank import _EventSender

    return _EventSender.seconds, time.process_time()  # type: ignore[attr-defined]


@contextlib.contextmanager
def viewed(client: Client, viewers: int) -> Iterator[None]:
    """Open `viewers` pages inside the context. Raises RuntimeError if they receive nothing."""
    show_fits(client)
    address = str(client.dashboard_link).removesuffix("/status")
    with subprocess.Popen([sys.executable, "-c", _VIEWER, address, str(viewers)], stdout=subprocess.PIPE) as process:
        try:
            if not process.stdout or not process.stdout.readline():
                raise RuntimeError("the viewers received nothing; see the output of their process above")
            yield
        finally:
            process.terminate()


def one(source: StoreSource, settings: FitSettings, client: Client) -> dict[str, float]:
    """Return the seconds of a fit, and the cores that it used."""
    begun, used, workers = time.perf_counter(), time.process_time(), client.run(_used)
    result = fit(source, settings, client=client)
    after = client.run(_used)
    wall, own = time.perf_counter() - begun, time.process_time() - used
    telling = sum(after[worker][0] - workers[worker][0] for worker in after)
    whole = sum(after[worker][1] - workers[worker][1] for worker in after)
    return {
        "wall_seconds": wall,
        "epochs_seconds": sum(epoch.seconds for epoch in result.epochs),
        "scheduler_cores": own / wall,
        "telling_cores": telling / wall,
        "all_cores": (own + whole) / wall,
    }


def rounds(source: StoreSource, settings: FitSettings, client: Client, repeats: int, viewers: int) -> list[Row]:
    """Return a row for each variant of each round."""
    sides: dict[str, Callable[[], Any]] = {
        "silent": lambda: silent(client),
        "closed": lambda: contextlib.nullcontext(show_fits(client)),
        "open": lambda: viewed(client, viewers),
    }
    client.run(_silence_events, False)
    fit(source, settings, client=client)
    found: list[Row] = []
    load = OthersLoad()
    for number in range(repeats):
        for name in [*sides][number % 3 :] + [*sides][: number % 3]:
            with sides[name]():
                load.used()
                taken = one(source, settings, client)
                others = load.cores()
            figures = {key: round(value, 4) for key, value in (taken | {"others_load_cores": others}).items()}
            found.append({"n_round": number + 1, "side": name, **figures})
            print(found[-1], flush=True)
    return found


def costs(rows: Sequence[Row]) -> list[Row]:
    """Return the cost of a variant over another of the same round, as medians."""
    by_round: dict[int, dict[str, Row]] = {}
    for row in rows:
        by_round.setdefault(row["n_round"], {})[row["side"]] = row
    found: list[Row] = []
    for side, over in (("closed", "silent"), ("open", "closed")):
        pairs = [(both[side], both[over]) for both in by_round.values()]
        cost = {
            f"{what}_share": statistics.median(a[f"{what}_seconds"] / b[f"{what}_seconds"] for a, b in pairs) - 1
            for what in ("epochs", "wall")
        }
        cost["scheduler_cores"] = statistics.median(a["scheduler_cores"] - b["scheduler_cores"] for a, b in pairs)
        taken = [[row["scheduler_cores"] + row["telling_cores"] for row in pair] for pair in pairs]
        shares = [(more - less) / pair[1]["all_cores"] for (more, less), pair in zip(taken, pairs, strict=True)]
        cost["processor_share"] = statistics.median(shares)
        found.append({"what": f"{side} over {over}", **{key: round(value, 4) for key, value in cost.items()}})
    return found


def store_in(folder: Path, n_rows: int) -> StoreSource:
    """Return a store of generated rows."""
    X = np.random.default_rng(0).standard_normal((n_rows, 20)).astype(np.float32)
    np.savez(folder / "d.npz", X=X, y=(X[:, 0] * X[:, 1] > 0).astype(int))
    daskkern.ingest([str(folder / "d.npz")], folder / "d.zarr")
    return StoreSource.at(str(folder / "d.zarr"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--landmarks", type=int, default=2_000)
    parser.add_argument("--batch-size", type=int, default=4096, help="default: 4,096")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--viewers", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--tiny", action="store_true", help="500 rows, one round, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.rows, options.landmarks, options.epochs, options.repeats = 500, 20, 1, 1
        options.batch_size = 100
    settings = FitSettings(
        Gaussian(4.0), SquaredHinge(), Landmarks(options.landmarks), EigenPro(), max_epochs=options.epochs,
        batch_size=options.batch_size, device="cpu", keep_blocks="never",
    )  # fmt: skip
    threads = max(1, cpu_count() // 2)
    workers: dict[str, Any] = {"n_workers": 2, "threads_per_worker": threads, "silence_logs": 50}
    with tempfile.TemporaryDirectory() as folder:
        source = store_in(Path(folder), options.rows)
        with LocalCluster(dashboard_address="127.0.0.1:0", **workers) as cluster, Client(cluster) as client:
            rows = rounds(source, settings, client, options.repeats, options.viewers)
    summary = {
        "n_rows": options.rows,
        "n_landmarks": options.landmarks,
        "n_epochs": options.epochs,
        "batch_size": options.batch_size,
        "n_ranks": 2,
        "threads_per_rank": threads,
        "n_viewers": options.viewers,
        "allowed_processor_share": ALLOWED_SHARE,
    }
    found = costs(rows)
    print(json.dumps(found, indent=1))
    add(
        Run("monitoring", today(), describe_machine(), versions(), summary, {"rounds": rows, "costs": found}),
        options.out,
    )
    most = max(cost["processor_share"] for cost in found)
    if options.check and most > ALLOWED_SHARE:
        sys.exit(f"monitoring costs {most:.2%} of the processor time; {ALLOWED_SHARE:.1%} is allowed")


if __name__ == "__main__":
    main()

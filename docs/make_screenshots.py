"""Make the screenshots of docs/monitoring.md: a cluster with two running fits, one recovering from the loss of a
worker, one that waits for workers, and one that has finished, in headless Chromium.

    python docs/make_screenshots.py [--out docs]

Needs chromium, chromium-driver and selenium; takes about a minute.
"""

import argparse
import io
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from PIL import Image

import daskkern
from daskkern import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.kernels import Gaussian
from daskkern.losses import Squared, SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.browser import browser, missing, wait_for

MOST_BYTES = 200_000
WIDTHS = (1280, 1920)


def stores(folder: Path) -> tuple[StoreSource, StoreSource]:
    """Return a classification store and a regression store."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 10)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(12_000)
    np.savez(folder / "delays.npz", X=X, y=(f > 0).astype(int))
    np.savez(folder / "prices.npz", X=X, y=f.astype(np.float32))
    for name in ("delays", "prices"):
        daskkern.ingest([str(folder / f"{name}.npz")], folder / f"{name}.zarr")
    return StoreSource.at(str(folder / "delays.zarr")), StoreSource.at(str(folder / "prices.zarr"))


def settings(**changes: Any) -> FitSettings:
    """Return the settings of a fit that takes minutes."""
    watched = EarlyStopping(patience=10_000)
    usual = FitSettings(
        Gaussian(3.0),
        SquaredHinge(),
        Landmarks(600),
        EigenPro(),
        early_stopping=watched,
        max_epochs=60,
        batch_size=128,
        device="cpu",
    )
    return replace(usual, **changes)


def wait(handle: FitHandle, epoch: int, timeout_s: float = 120.0) -> None:
    """Wait until a fit is in an epoch, or has ended."""
    deadline = time.monotonic() + timeout_s
    while (status := handle.status()).active and status.epoch < epoch and time.monotonic() < deadline:
        time.sleep(0.3)


def lose_a_worker(client: Client, handle: FitHandle) -> None:
    """Kill a worker of a fit, if possible one that runs no driver."""
    pids = client.run(os.getpid)
    names = {str(worker["name"]): address for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()}
    tasks = {address: str(keys) for address, keys in client.processing().items()}
    own = [names[name] for name in handle.status().workers if name in names]
    victim = min(own, key=lambda address: ("supervisor" in tasks[address]) + 2 * ("daskkern_fit-" in tasks[address]))
    os.kill(pids[victim], signal.SIGKILL)


def show(driver: Any, address: str, theme: str, fit: str, *others: str) -> None:
    """Open the page, and wait until it has the data of `fit`, compared with `others`."""
    driver.get(f"{address}/kernel-fits?theme={theme}")
    model = "Bokeh.documents[0].get_model_by_name('{}')"
    wait_for(driver, f"return {model.format('chosen')}.options.length > 3")
    time.sleep(2.5)  # settings made before the page is connected are lost
    driver.execute_script(f"{model.format('chosen')}.value = '{fit}'")
    wait_for(driver, f"return {model.format('fits')}.text.includes(\"class='chosen' data-fit='{fit}'\")")
    driver.execute_script(f"{model.format('compared')}.value = {list(others)}")
    wait_for(driver, f"return ({model.format('comparison')}.tags.length > 0) === {str(bool(others)).lower()}")
    time.sleep(2.0)  # the browser draws canvases with a delay
    height, width = driver.execute_script("return [document.documentElement.scrollHeight, innerWidth]")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1.0)


def picture(driver: Any, path: Path) -> None:
    """Write the open page, in its full height, as an image of 256 colours."""
    image = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    size = path.stat().st_size
    print(f"{path}: {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"{path} has {size} bytes; {MOST_BYTES} is the most")


def wait_for_state(handle: FitHandle, state: str, timeout_s: float = 60.0) -> None:
    """Wait until a fit is in a state."""
    deadline = time.monotonic() + timeout_s
    while handle.status().state != state:
        if time.monotonic() > deadline:
            raise SystemExit(f"fit {handle.fit} was not {state} in {timeout_s:g} s")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    if missing():
        raise SystemExit(f"no headless Chromium was found: {missing()}")
    cluster = LocalCluster(n_workers=6, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50)
    with tempfile.TemporaryDirectory() as name, cluster, Client(cluster) as client:
        folder = Path(name)
        delays, prices = stores(folder)
        gang, policy = (
            GangSettings(n_ranks=2, silence_s=5.0, rejoin_s=10.0),
            CheckpointPolicy(commit_s=0.5, checkpoint_s=4.0),
        )

        def start(label: str, source: StoreSource, wanted: FitSettings) -> FitHandle:
            where = str(folder / f"{label}.model.zarr")
            return submit(FitJob(source, wanted, policy=policy), client, where, gang=gang, name=label)

        done = start("delays_first_try", delays, settings(max_epochs=3))
        done.watch(timeout_s=180)
        lost = start("delays", delays, settings())
        others = [
            start("prices", prices, settings(loss=Squared())),
            start("delays_wide", delays, settings(basis=Landmarks(1200), kernel=Gaussian(2.0))),
        ]
        for handle in (lost, *others):
            wait(handle, 4)
        address = str(client.dashboard_link).removesuffix("/status")
        with browser(WIDTHS[0], 900) as driver:
            show(driver, address, "light", lost.fit)
            lose_a_worker(client, lost)
            wait_for_state(lost, "recovering")
            wait_for(driver, "return Bokeh.documents[0].get_model_by_name('facts').text.includes('state recovering')")
            time.sleep(1.0)  # the browser draws it
            picture(driver, out / "kernel-fits-recovering.png")
            wait_for_state(lost, "running")
            queued = start("prices_all", prices, settings(loss=Squared(), basis=Landmarks(5000)))
            wait_for_state(queued, "queued")
            show(driver, address, "light", others[1].fit, lost.fit, done.fit)
            picture(driver, out / "kernel-fits-overlay.png")
            show(driver, address, "light", queued.fit)
            picture(driver, out / "kernel-fits-queued.png")
            queued.cancel(abort=True)
            for theme in ("light", "dark"):
                for width in WIDTHS:
                    driver.set_window_size(width, 900)
                    show(driver, address, theme, (lost if theme == "dark" else others[0]).fit)
                    picture(driver, out / f"kernel-fits-{theme}-{width}.png")
        for handle in (lost, *others):
            handle.cancel(abort=True)


if __name__ == "__main__":
    main()

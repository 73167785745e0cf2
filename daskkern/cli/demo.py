"""``daskkern demo``: the main job from ingestion to scoring, on data that ships with scikit-learn."""

import time
from functools import partial
from pathlib import Path

import click
import numpy as np
from sklearn.datasets import load_digits

from daskkern.basis import Landmarks
from daskkern.cli.console import REMARKS, say
from daskkern.cli.ingest import print_report
from daskkern.cli.options.cluster_options import ClusterRequest
from daskkern.cli.options.row_options import open_rows
from daskkern.cli.output.fit_results import finish
from daskkern.cli.score import describe
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError
from daskkern.evaluation.score import score_store
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.models import load_model, save_model
from daskkern.monitor.progress import progress
from daskkern.solvers import parse_solver
from daskkern.training.direct.roles import RowRoles
from daskkern.training.planning.planner import device_pool
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

_EPOCHS = 10


@click.command("demo")
@click.option(
    "--out", default="daskkern-demo", show_default=True, metavar="DIR", help="Folder for data, stores and model."
)
@click.pass_context
def command(context: click.Context, out: str) -> None:
    """Ingest, fit on a local cluster, score and save, on 1,797 handwritten digits. Takes under a minute."""
    begun = time.perf_counter()
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder {out} cannot be created: {error.strerror}; choose another --out") from None
    source, train, test, model = (folder / name for name in ("digits.npz", "train.zarr", "test.zarr", "model.zarr"))
    say("1. The data: 1,797 images of 8 x 8 pixels that ship with scikit-learn, written as an npz file")
    digits = load_digits()
    np.savez_compressed(source, X=digits.data.astype(np.uint8), y=digits.target)
    say(f"   {source}")
    say("2. Ingest: daskkern ingest digits.npz --out train.zarr --split 0.2 --out-test test.zarr --scale minmax")
    print_report(ingest([str(source)], train, scale="minmax", split=0.2, out_test=test, overwrite=True))
    say("3. Fit: daskkern fit train.zarr --kernel gaussian:median --landmarks 1000 --out model.zarr")
    where = ClusterRequest(None, 2, "auto", bool(context.find_root().params.get("debug")))
    settings = FitSettings(
        Gaussian("median"), SquaredHinge(), Landmarks(1000), parse_solver("auto"), max_epochs=_EPOCHS, calibrate=True
    )
    rows = open_rows(str(train), RowRoles())
    with where.client(partial(device_pool, rows, settings)) as client, progress(_EPOCHS, REMARKS) as listener:
        result = fit(rows, settings, client=client, listener=listener)
    save_model(result.model, model)
    finish(result, str(model))
    say("4. Score: daskkern score model.zarr test.zarr")
    say(f"   {describe(score_store(load_model(model), open_store(test)))}")
    say(f"Done in {time.perf_counter() - begun:.0f} s. The model is {model}")
    say(f"   in Python: daskkern.load({str(model)!r}).predict(X)")

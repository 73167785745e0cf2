"""``daskkern demo``: the main job from ingestion to scoring, on data that ships with scikit-learn."""

import time
from pathlib import Path

import click
import numpy as np
from sklearn.datasets import load_digits

from daskkern.cli.console import say
from daskkern.cli.fit import fit_command
from daskkern.cli.ingest import print_report
from daskkern.cli.score import describe
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError
from daskkern.evaluation.score import score_store
from daskkern.models import load_model

_FIT = ("--kernel", "gaussian:median", "--landmarks", "1000", "--workers", "2")


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
    say(f"3. Fit: daskkern fit train.zarr {' '.join(_FIT)} --out model.zarr")
    words = [*_FIT, f"--out={model}", "--overwrite", "--", str(train)]
    fit_command.main(words, prog_name="daskkern fit", standalone_mode=False, parent=context)
    say("4. Score: daskkern score model.zarr test.zarr")
    say(f"   {describe(score_store(load_model(model), open_store(test)))}")
    say(f"Done in {time.perf_counter() - begun:.0f} s. The model is {model}")
    say(f"   in Python: daskkern.load({str(model)!r}).predict(X)")

"""Serve a saved model with NumPy alone: neither daskkern nor Zarr is imported here.

A model is a folder of small JSON files and of chunks of plain numbers (docs/store-format.md). :class:`Predictor` reads
them and computes ``f(x) = sum_j k(x, z_j) a_j``: copy it to systems where nothing may be installed. It supports
dense models with one length scale and a Gaussian, Laplacian or Cauchy kernel, and refuses others.

Without ``--model`` another process creates one with `examples/quickstart.py`. ``--port`` serves it over HTTP until it
is stopped: POST a JSON list of rows to get a list of predictions.

Run it with ``python examples/serve_with_numpy.py``; it takes a few seconds.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

PROFILES = {
    "gaussian": lambda r: np.exp(-(r**2) / 2),
    "laplacian": lambda r: np.exp(-r),
    "cauchy": lambda r: 1 / (1 + r**2),
}


def read_array(folder: Path) -> Array:
    """Read an array of Zarr version 3 whose chunks are uncompressed blocks of whole rows."""
    about = json.loads((folder / "zarr.json").read_text())
    codecs = [codec["name"] for codec in about["codecs"]]
    rows, *rest = about["shape"]
    chunk, *chunk_rest = about["chunk_grid"]["configuration"]["chunk_shape"]
    if codecs != ["bytes"] or rest != chunk_rest:
        raise ValueError(f"{folder} has chunks {about['chunk_grid']} with {codecs}; rows of plain bytes are expected")
    out = np.empty((rows, *rest), about["data_type"])
    for number in range(math.ceil(rows / chunk)):
        path = folder.joinpath("c", str(number), *["0"] * len(rest))
        block = np.fromfile(path, out.dtype.newbyteorder("<")).reshape(chunk, *rest)
        out[number * chunk : (number + 1) * chunk] = block[: rows - number * chunk]
    return out


class Predictor:
    """A saved model: points, coefficients, kernel, scaling and classes."""

    def __init__(self, path: Path) -> None:
        about = json.loads((path / "zarr.json").read_text())["attributes"]
        kernel = about["kernel"]
        if about["format"] != "daskkern-model" or not about["complete"] or about["scores_each"] != 1:
            raise ValueError(f"{path} is not a complete model with one score for each output")
        if kernel["name"] not in PROFILES or not isinstance(kernel["length_scale"], int | float):
            raise ValueError(f"the kernel of {path} is {kernel}; this script supports {', '.join(PROFILES)}")
        self.points, self.coef = (read_array(path / name).astype(np.float64) for name in ("points", "coef"))
        self.profile, self.length_scale = PROFILES[kernel["name"]], kernel["length_scale"]
        self.shift = np.array(about["scaling"]["shift"] or [0.0])  # empty lists: no scaling
        self.scale = np.array(about["scaling"]["scale"] or [1.0])
        bend = np.array(about["scaling"].get("bend") or [0.0])  # only features with heavy tails have one
        self.bent, self.bend = bend > 0, np.where(bend > 0, bend, 1.0)
        self.labels = about["classes"] and np.array(about["classes"]["labels"])
        self.target_shift, self.target_scale = about["target_shift"], about["target_scale"]

    def scaled(self, X: Array) -> Array:
        """Return rows (n, d) in the units of the model: z = (x - shift) / scale, or b arcsinh(z / b) with a bend b."""
        Z = (X - self.shift) / self.scale
        return np.where(self.bent, self.bend * np.arcsinh(Z / self.bend), Z)

    def raw_points(self) -> Array:
        """Return the points (p, d) in the units of the data, the inverse of :meth:`scaled`."""
        Z = np.where(self.bent, self.bend * np.sinh(np.where(self.bent, self.points, 0) / self.bend), self.points)
        return Z * self.scale + self.shift

    def scores(self, X: Array) -> Array:
        """Return f(x) for rows (n, d): (n, c)."""
        X = self.scaled(X)
        squared = (X**2).sum(axis=1)[:, None] + (self.points**2).sum(axis=1) - 2 * X @ self.points.T
        scores = self.profile(np.sqrt(np.maximum(squared, 0)) / self.length_scale) @ self.coef
        return scores if self.labels is None else scores + (self.target_shift or 0)  # constants of the classes

    def predict(self, X: Array) -> Array:
        """Return class labels (n,), or targets (n, t)."""
        scores = self.scores(X)
        if self.labels is None:
            return scores * (self.target_scale or 1) + (self.target_shift or 0)
        single = scores.shape[1] == 1 and len(self.labels) == 2
        return self.labels[(scores[:, 0] > 0).astype(int) if single else scores.argmax(axis=1)]


def server(predictor: Predictor, port: int) -> HTTPServer:
    """Return a server of `predictor` on the loopback interface; port 0 selects a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            rows = np.array(json.loads(self.rfile.read(int(self.headers["Content-Length"]))), np.float64)
            body = json.dumps(predictor.predict(rows).tolist()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return HTTPServer(("127.0.0.1", port), Handler)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model to serve (default: one fitted to digits)")
    parser.add_argument("--landmarks", default="500", help="columns of the model that is fitted (default: 500)")
    parser.add_argument("--port", type=int, help="serve over HTTP until stopped (default: answer one request, and end)")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            maker = Path(__file__).with_name("quickstart.py")
            words = ["--out", folder, "--landmarks", options.landmarks]
            subprocess.run([sys.executable, maker, *words], check=True, stdout=subprocess.DEVNULL)
            model = Path(folder) / "digits-model.zarr"
        predictor = Predictor(model)
    print(f"{model.name}: {len(predictor.points):,} points of {predictor.points.shape[1]} features")
    print(f"daskkern or zarr imported: {bool({'daskkern', 'zarr'} & sys.modules.keys())}")

    with server(predictor, options.port or 0) as serving:
        where = f"http://127.0.0.1:{serving.server_port}/"
        print(f"serving at {where}", flush=True)
        if options.port is not None:
            serving.serve_forever()
        threading.Thread(target=serving.handle_request, daemon=True).start()
        rows = predictor.raw_points()[:5]
        with urllib.request.urlopen(urllib.request.Request(where, json.dumps(rows.tolist()).encode())) as answer:
            print(f"predictions for the model's first five points: {json.loads(answer.read())}")


if __name__ == "__main__":
    main()

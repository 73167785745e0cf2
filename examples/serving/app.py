"""Serve a saved model over HTTP with FastAPI: micro-batches, all cores, a health endpoint, one sentence on bad input.

The model is the light predictor of ``daskkern.load``: the process imports neither Dask nor scikit-learn. Requests that
arrive while a product runs are joined in the next one (`batching.py`); a product uses all cores, so one process is
enough.

    pip install 'daskkern[serve]'
    python examples/serving/app.py --model model.zarr --port 8000
    curl localhost:8000/predict -H 'content-type: application/json' -d '{"rows": [[5.1, 3.5, 1.4, 0.2]]}'
"""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

import daskkern
from daskkern.errors import DaskkernError
from daskkern.models import KernelModel

sys.path.insert(0, str(Path(__file__).parent))
from batching import BusyError, MicroBatcher
from rows import BadRowsError, features_of


class Rows(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Any] = Field(description="Lists of features, or objects with the names of the training table's columns.")
    probabilities: bool = Field(False, description="Whether the answer has probabilities, where the model has some.")
    confidence: float | None = Field(None, gt=0, lt=1, description="Of sets or intervals, for calibrated models.")


def answer_of(model: KernelModel, scores: Any, asked: Rows) -> dict[str, Any]:
    """Return predictions of scores (m, c), with probabilities, intervals or sets where the request names them."""
    found: dict[str, Any] = {"predictions": model.labels(scores).tolist()}
    if model.classes is not None:
        found["classes"] = list(model.classes)
    if asked.probabilities:
        found["probabilities"] = model.probabilities(scores).tolist()
    if asked.confidence is not None:
        kind = "intervals" if model.task == "regression" else "sets"
        found[kind] = getattr(model, kind)(scores, asked.confidence).tolist()
    return found


def create_app(model: str | Path | KernelModel, most_rows: int = 10_000, batch_rows: int = 4096) -> FastAPI:
    """Return the application that serves `model`, which is loaded when it starts.

    Parameters
    ----------
    model : path, URL or KernelModel
    most_rows : int
        Rows of a request.
    batch_rows : int
        Rows of a product.
    """
    state: dict[str, Any] = {}

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        served = model if isinstance(model, KernelModel) else daskkern.load(str(model))
        served.scores(np.zeros((1, served.n_features)))  # compiles the products before the first request
        batcher = MicroBatcher(served.scores, batch_rows)
        state.update(model=served, batcher=batcher)
        await batcher.start()
        yield
        await batcher.stop()

    app = FastAPI(title="daskkern", version=daskkern.__version__, lifespan=life)

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        return JSONResponse({"detail": f"got an unusable request; {where}: {first['msg']}"}, 422)

    @app.exception_handler(BadRowsError)
    @app.exception_handler(DaskkernError)
    async def unusable(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> JSONResponse:
        return JSONResponse({"detail": "too many rows wait; try again in a second"}, 503, {"Retry-After": "1"})

    @app.get("/health")
    async def health() -> JSONResponse:
        served, batcher = state["model"], state["batcher"]
        facts = {
            "status": "ok" if batcher.is_running else "stopped",
            "task": served.task,
            "features": served.n_features,
            "points": served.points.shape[0],
            "batches": batcher.batches,
            "rows": batcher.rows,
        }
        return JSONResponse(facts, 200 if batcher.is_running else 503)

    @app.post("/predict")
    async def predict(asked: Rows) -> dict[str, Any]:
        served = state["model"]
        scores = await state["batcher"].answer(served.check(features_of(served, asked.rows, most_rows)))
        return answer_of(served, scores, asked)

    return app


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model to serve: a path or URL")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--most-rows", type=int, default=10_000, help="rows of a request (default: 10,000)")
    options = parser.parse_args(argv)
    import uvicorn

    try:
        served = daskkern.load(options.model)
    except DaskkernError as error:
        raise SystemExit(str(error)) from None
    print(json.dumps({"model": options.model, "task": served.task, "features": served.n_features}), flush=True)
    uvicorn.run(create_app(served, options.most_rows), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()

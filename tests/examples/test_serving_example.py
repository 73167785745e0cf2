"""The FastAPI application of the examples: answers, batches, health, and one sentence on bad input."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import daskkern
from daskkern.calibration import Calibration, ScoreScaling
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.kernels import Gaussian
from daskkern.models import KernelModel, save_model

EXAMPLE = Path(daskkern.__file__).parents[1] / "examples" / "serving"
pytest.importorskip("fastapi", reason="FastAPI is not installed; run: pip install 'daskkern[serve]' httpx")
pytest.importorskip("httpx", reason="FastAPI's test client needs httpx; run: pip install httpx")
pytestmark = [
    pytest.mark.skipif(not EXAMPLE.exists(), reason="the example lies in the repository: run the tests from a clone"),
    pytest.mark.filterwarnings("ignore:Using `httpx` with"),  # of Starlette's test client
]
COLUMNS = (
    ColumnEncoding("age", fill=2.5),
    ColumnEncoding("job", "onehot", ("baker", "smith")),
    ColumnEncoding("label", "code", ("x", "y")),
)


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"serving_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def model_of(**more: Any) -> KernelModel:
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        "loss": "hinge",
        "task": "classification",
        "classes": ("no", "yes"),
        "encoding": COLUMNS,
        "calibration": Calibration("held-out", 9, np.linspace(0, 1, 9)[:, None], ScoreScaling(1.0)),
    }
    return KernelModel(
        kernel=Gaussian(2.0), points=rng.normal(size=(20, 4)), coef=rng.normal(size=(20, 1)), **{**given, **more}
    )


@pytest.fixture(scope="module")
def app() -> ModuleType:
    return load_example("app")


@pytest.fixture(scope="module")
def client(app: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from fastapi.testclient import TestClient

    path = tmp_path_factory.mktemp("models") / "m.zarr"
    save_model(model_of(), path)
    with TestClient(app.create_app(path, most_rows=100)) as found:
        yield found


def test_rows_are_answered_as_the_model_predicts(client: Any) -> None:
    X = np.random.default_rng(1).normal(size=(30, 4))
    found = client.post("/predict", json={"rows": X.tolist(), "probabilities": True, "confidence": 0.8})
    assert found.status_code == 200
    model, body = model_of(), found.json()
    assert body["predictions"] == model.predict(X).tolist()
    assert body["classes"] == ["no", "yes"]
    np.testing.assert_allclose(body["probabilities"], model.predict_proba(X))
    assert body["sets"] == model.predict_set(X, 0.8).tolist()
    health = client.get("/health")
    assert health.status_code == 200
    assert health.json() | {"status": "ok", "task": "classification", "features": 4, "points": 20} == health.json()


def test_rows_by_name_are_encoded_as_recorded(client: Any) -> None:
    rows = [{"age": 1, "job": "smith", "label": "y"}, {"job": "baker", "age": None, "label": "new"}]
    found = client.post("/predict", json={"rows": rows})
    X = np.array([[1.0, 0, 1, 1], [2.5, 1, 0, 2]])
    assert found.json()["predictions"] == model_of().predict(X).tolist()


BAD = {
    "got 3 numbers in row 1; expected the model's 4 features": {"rows": [[1, 2, 3, 4], [1, 2, 3]]},
    "got 'x' for row 0; expected a finite number": {"rows": [[1, "x", 3, 4]]},
    "got 0 rows; expected 1 to 100": {"rows": []},
    "got 101 rows; expected 1 to 100": {"rows": [[0, 0, 0, 0]] * 101},
    "got 5 as row 1; expected lists of numbers, or objects only": {"rows": [[1, 2, 3, 4], 5]},
    "got 'pilot' for 'job' of row 0; expected one of the model's categories: baker, smith": {
        "rows": [{"job": "pilot"}]
    },
    "got the unknown column 'size' in row 0; leave it out": {"rows": [{"size": 1}]},
    "got an unusable request; rows: Field required": {"row": [[1]]},
    "row 0 has values too large for float64: its score is not a number": {"rows": [[1e300, 0, 0, 0]]},
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_gets_one_sentence_and_422(client: Any, sentence: str) -> None:
    found = client.post("/predict", json=BAD[sentence])
    assert found.status_code == 422
    assert found.json() == {"detail": sentence}


def test_what_the_model_does_not_have_is_said(app: ModuleType) -> None:
    from fastapi.testclient import TestClient

    plain = model_of(calibration=None, encoding=None)
    with TestClient(app.create_app(plain)) as client:
        assert "was not calibrated" in client.post("/predict", json={"rows": [[0] * 4], "confidence": 0.9}).text
        assert client.post("/predict", json={"rows": [{"a": 1}]}).json()["detail"].startswith("got rows with names")
        assert client.post("/predict", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    assert client.get("/health").status_code == 503


def test_requests_that_wait_together_are_one_product_and_fail_alone() -> None:
    batching = load_example("batching")
    sizes = []

    def scores(rows: Any) -> Any:
        sizes.append(len(rows))
        if (rows < 0).any():
            raise ValueError("negative")
        return rows.sum(axis=1, keepdims=True)

    async def run() -> list[Any]:
        batcher = batching.MicroBatcher(scores, most_rows=10, most_waiting=20)
        await batcher.start()
        asked = [batcher.answer(np.full((4, 2), value)) for value in (1.0, 2.0, -1.0, 3.0, 4.0, 5.0)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await batcher.stop()
        assert not batcher.is_running
        return found

    found = asyncio.run(run())
    assert [float(part[0, 0]) for part in (found[0], found[1], found[3], found[4])] == [2.0, 4.0, 6.0, 8.0]
    assert str(found[2]) == "negative"
    assert isinstance(found[5], batching.BusyError)
    assert sizes == [8, 8, 4, 4, 4]


def test_a_missing_model_is_one_line(app: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"there is no model at missing\.zarr"):
        app.main(["--model", "missing.zarr"])

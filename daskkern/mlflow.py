"""MLflow integration: models are saved, logged, registered, loaded and served as Python functions, without pickle.

Needs ``daskkern[mlflow]``. The model of a run is the Zarr group that :meth:`KernelModel.save` writes, under the flavors
``daskkern`` and ``python_function``.
"""

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from daskkern import __version__
from daskkern.arrays import HostArray
from daskkern.errors import ModelError
from daskkern.evaluation.predict import predict_table
from daskkern.models import KernelModel
from daskkern.models import load_model as read_model
from daskkern.models import save_model as write_model

FLAVOR = "daskkern"
_FOLDER = "model.zarr"
_OUTPUTS = ("predictions", "scores", "probabilities", "table")


class Fitted(Protocol):
    """An estimator that has been fitted."""

    model_: KernelModel


def save_model(
    model: KernelModel | Fitted,
    path: str | Path,
    *,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    mlflow_model: Any = None,
) -> None:
    """Save a model to a local folder in MLflow's format.

    Parameters
    ----------
    model : KernelModel or fitted estimator
    path : path
        A folder that does not exist.
    signature : mlflow.models.ModelSignature, optional
        Types of inputs and outputs; ``mlflow.models.infer_signature`` makes one.
    input_example : frame, array or list, optional
        Rows that are saved as an example.
    pip_requirements : list of str, optional
        By default this version of daskkern.
    metadata : mapping, optional
        Recorded in the MLmodel file.
    mlflow_model : mlflow.models.Model, optional
        The description to complete; MLflow gives it while a model is logged.

    Raises
    ------
    ModelError
        Without MLflow, or for a folder that exists.
    """
    mlflow = _mlflow()
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} exists and is not empty; give the name of a new folder for the model of MLflow")
    folder.mkdir(parents=True, exist_ok=True)
    described = mlflow.models.Model() if mlflow_model is None else mlflow_model
    if signature is not None:
        described.signature = signature
    if metadata is not None:
        described.metadata = dict(metadata)
    if input_example is not None:
        mlflow.models.utils._save_example(described, input_example, str(folder))
    fitted = _model_of(model)
    write_model(fitted, folder / _FOLDER)
    wanted = [f"daskkern=={__version__}"] if pip_requirements is None else list(pip_requirements)
    (folder / "requirements.txt").write_text("\n".join(wanted) + "\n")
    mlflow.utils.environment._PythonEnv.current().to_yaml(str(folder / "python_env.yaml"))
    mlflow.pyfunc.add_to_model(described, loader_module="daskkern.mlflow", data=_FOLDER, python_env="python_env.yaml")
    facts = {"task": fitted.task, "kernel": fitted.kernel.name, "loss": fitted.loss}
    described.add_flavor(FLAVOR, daskkern_version=__version__, data=_FOLDER, **facts)
    described.save(str(folder / "MLmodel"))


def log_model(
    model: KernelModel | Fitted,
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Log a model to the active run of MLflow, and return MLflow's ``ModelInfo``; its ``model_uri`` loads it.

    `registered_model_name` registers it too; see :func:`save_model` for the other parameters and the errors.
    """
    log = _mlflow().models.Model.log
    place = {"artifact_path": None, "name": name}  # since MLflow 3
    return log(
        **(place if "name" in inspect.signature(log).parameters else {"artifact_path": name}),
        flavor=sys.modules[__name__],
        model=model,
        registered_model_name=registered_model_name,
        signature=signature,
        input_example=input_example,
        pip_requirements=pip_requirements,
        metadata=None if metadata is None else dict(metadata),
    )


def load_model(model_uri: str, dst_path: str | None = None) -> KernelModel:
    """Return the model at a URI of MLflow, such as ``runs:/ID/model``, ``models:/NAME/1`` or a folder.

    Raises
    ------
    ModelError
        Without MLflow, for a model of another flavor, and for a damaged one.
    """
    mlflow = _mlflow()
    local = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri), dst_path=dst_path))
    flavors = mlflow.models.Model.load(str(local / "MLmodel")).flavors
    if FLAVOR not in flavors:
        raise ModelError(f"got {model_uri} with the flavors {', '.join(flavors)}; expected the flavor {FLAVOR}")
    return read_model(local / _FOLDER)


class PythonFunction:
    """A model as MLflow serves it."""

    def __init__(self, model: KernelModel) -> None:
        self._model = model

    def get_raw_model(self) -> KernelModel:
        """Return the model."""
        return self._model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return an array of predictions for a data frame or an array.

        ``params={"output": ...}`` gives "scores", "probabilities", or "table": a data frame with all columns of
        :func:`daskkern.predict_table`, whose intervals or sets follow from ``params={"confidence": 0.9}``.

        Raises
        ------
        DaskkernError
            For other outputs, and rows that do not fit the model.
        """
        given = dict(params or {})
        output, confidence = given.get("output", "predictions"), given.get("confidence")
        if output not in _OUTPUTS:
            raise ModelError(f"got output {output!r}; choose one of {', '.join(_OUTPUTS)}")
        if output == "table" or (self._model.encoding is not None and hasattr(model_input, "columns")):
            if self._model.feature_names is None:
                raise ModelError("got output 'table', but the model was trained on arrays without names of columns")
            table = predict_table(self._model, model_input, scores=output == "scores", confidence=confidence)
            return _of_table(table, output)
        X = _numbers(self._model, model_input)
        if output == "scores":
            return self._model.decision_function(X)
        return self._model.predict_proba(X) if output == "probabilities" else self._model.predict(X)


def _load_pyfunc(path: str) -> PythonFunction:
    """Return the model in a folder, for ``mlflow.pyfunc.load_model``."""
    return PythonFunction(read_model(path))


def _of_table(table: Any, output: str) -> Any:
    frame = table.to_pandas()
    if output == "table":
        return frame
    start = {"predictions": ("prediction", "quantile_"), "scores": ("score",), "probabilities": ("probability_",)}
    names = [name for name in frame.columns if name.startswith(start[output])]
    if not names:
        raise ModelError(f"the model has no {output}; choose one of {', '.join(_OUTPUTS)}")
    found = frame[names].to_numpy()
    return found[:, 0] if len(names) == 1 else found


def _numbers(model: KernelModel, rows: Any) -> HostArray:
    """Return features (n, d): columns of a frame by their names, where both have some."""
    names = model.feature_names
    if names is not None and hasattr(rows, "columns") and set(names) <= set(rows.columns):
        rows = rows[list(names)]
    return model.check(rows if hasattr(rows, "columns") else np.asarray(rows))


def _model_of(model: KernelModel | Fitted) -> KernelModel:
    found = model if isinstance(model, KernelModel) else getattr(model, "model_", None)
    if not isinstance(found, KernelModel):
        raise ModelError(f"got {type(model).__name__}; expected a model or a fitted estimator of daskkern")
    return found


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
        import mlflow.utils.environment
    except ImportError:
        raise ModelError("the package mlflow is not installed; run: pip install 'daskkern[mlflow]'") from None
    return mlflow

"""Kernel machines on data bigger than memory, on one laptop or on a multi-GPU Dask cluster.

Public names are resolved on first use (PEP 562), so that importing the package costs milliseconds and a predictor
needs only NumPy and Zarr.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskkern.basis import (
        AllRows,
        DoublyStochastic,
        Landmarks,
        Linear,
        LocallyLinear,
        LocalRows,
        NystromFeatures,
        RandomFeatures,
    )
    from daskkern.data.direct.table_files import TableFiles
    from daskkern.data.ingest import ingest
    from daskkern.data.storage.store import open_store
    from daskkern.estimators import (
        AutoKernelClassifier,
        AutoKernelRegressor,
        KernelClassifier,
        KernelFeatures,
        KernelRegressor,
    )
    from daskkern.evaluation.predict import predict_table, write_predictions
    from daskkern.feature_learning import FeatureLearning
    from daskkern.inspection import gradient_importance, permutation_importance, score_gradients
    from daskkern.inspection.interactions import interactions
    from daskkern.models import KernelModel
    from daskkern.models import load_model as load
    from daskkern.training.jobs.handle import FitHandle, attach, list_fits
    from daskkern.unsupervised import (
        KernelDensity,
        KernelKMeans,
        KernelPCA,
        MMDTest,
        OneClassSVM,
        SpectralClustering,
        mmd_test,
    )

__version__ = "0.1.0"

_PUBLIC = {
    "AllRows": ("daskkern.basis", "AllRows"),
    "AutoKernelClassifier": ("daskkern.estimators", "AutoKernelClassifier"),
    "AutoKernelRegressor": ("daskkern.estimators", "AutoKernelRegressor"),
    "FeatureLearning": ("daskkern.feature_learning", "FeatureLearning"),
    "FitHandle": ("daskkern.training.jobs.handle", "FitHandle"),
    "KernelClassifier": ("daskkern.estimators", "KernelClassifier"),
    "KernelModel": ("daskkern.models", "KernelModel"),
    "KernelFeatures": ("daskkern.estimators", "KernelFeatures"),
    "KernelDensity": ("daskkern.unsupervised", "KernelDensity"),
    "KernelKMeans": ("daskkern.unsupervised", "KernelKMeans"),
    "KernelPCA": ("daskkern.unsupervised", "KernelPCA"),
    "KernelRegressor": ("daskkern.estimators", "KernelRegressor"),
    "Landmarks": ("daskkern.basis", "Landmarks"),
    "MMDTest": ("daskkern.unsupervised", "MMDTest"),
    "OneClassSVM": ("daskkern.unsupervised", "OneClassSVM"),
    "SpectralClustering": ("daskkern.unsupervised", "SpectralClustering"),
    "DoublyStochastic": ("daskkern.basis", "DoublyStochastic"),
    "Linear": ("daskkern.basis", "Linear"),
    "LocallyLinear": ("daskkern.basis", "LocallyLinear"),
    "LocalRows": ("daskkern.basis", "LocalRows"),
    "NystromFeatures": ("daskkern.basis", "NystromFeatures"),
    "RandomFeatures": ("daskkern.basis", "RandomFeatures"),
    "TableFiles": ("daskkern.data.direct.table_files", "TableFiles"),
    "attach": ("daskkern.training.jobs.handle", "attach"),
    "gradient_importance": ("daskkern.inspection", "gradient_importance"),
    "ingest": ("daskkern.data.ingest", "ingest"),
    "interactions": ("daskkern.inspection", "interactions"),
    "mmd_test": ("daskkern.unsupervised", "mmd_test"),
    "list_fits": ("daskkern.training.jobs.handle", "list_fits"),
    "load": ("daskkern.models", "load_model"),
    "open_store": ("daskkern.data.storage.store", "open_store"),
    "permutation_importance": ("daskkern.inspection", "permutation_importance"),
    "plot": ("daskkern.plot", ""),  # a package, too
    "predict_table": ("daskkern.evaluation.predict", "predict_table"),
    "score_gradients": ("daskkern.inspection", "score_gradients"),
    "sweep": ("daskkern.systems", "sweep"),
    "systems": ("daskkern.systems", ""),  # the package itself, which is read like a mapping
    "write_predictions": ("daskkern.evaluation.predict", "write_predictions"),
}

__all__ = [
    "AllRows",
    "AutoKernelClassifier",
    "AutoKernelRegressor",
    "DoublyStochastic",
    "FeatureLearning",
    "FitHandle",
    "KernelClassifier",
    "KernelDensity",
    "KernelFeatures",
    "KernelKMeans",
    "KernelModel",
    "KernelPCA",
    "KernelRegressor",
    "Landmarks",
    "Linear",
    "LocalRows",
    "LocallyLinear",
    "MMDTest",
    "NystromFeatures",
    "OneClassSVM",
    "RandomFeatures",
    "SpectralClustering",
    "TableFiles",
    "attach",
    "gradient_importance",
    "ingest",
    "interactions",
    "list_fits",
    "load",
    "mmd_test",
    "open_store",
    "permutation_importance",
    "plot",
    "predict_table",
    "score_gradients",
    "sweep",
    "systems",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'daskkern' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    found = importlib.import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__", "__version__"])

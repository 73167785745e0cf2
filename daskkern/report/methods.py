"""What models of the unsupervised estimators are, for reports and cards: no classifiers or regressors with targets."""

from collections.abc import Mapping
from dataclasses import dataclass

from daskkern.models import KernelModel


@dataclass(frozen=True)
class Method:
    """A method without targets: its name, what its model predicts for a row, and the tag of model hubs."""

    name: str
    predicts: str
    tag: str


_METHODS = {
    "KernelPCA": Method("Kernel principal components", "its components", "feature-extraction"),
    "KernelDensity": Method("Kernel density estimate", "the density there, not its logarithm", "density-estimation"),
    "KernelKMeans": Method("Clusters of kernel k-means", "the number of its cluster", "clustering"),
    "SpectralClustering": Method("Spectral clusters", "the number of its cluster", "clustering"),
    "OneClassSVM": Method(
        "One-class support vector machine",
        "the decision value, below 0 where it is unlike the training rows",
        "novelty-detection",
    ),
}


def method_of(model: KernelModel) -> Method | None:
    """Return the unsupervised method that a model is of; None for a classifier or a regressor."""
    return _METHODS.get(str(model.provenance.get("method")))


def parameters_of(model: KernelModel) -> Mapping[str, object]:
    """Return the parameters of the unsupervised estimator, as it recorded them; none of earlier versions."""
    found = model.provenance.get("parameters", {})
    return found if isinstance(found, Mapping) else {}

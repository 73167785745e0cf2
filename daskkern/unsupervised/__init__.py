"""Unsupervised estimators: components, clusters, densities, novelty detection, and a two-sample test."""

from daskkern.unsupervised.kernel_density import KernelDensity
from daskkern.unsupervised.kernel_k_means import KernelKMeans
from daskkern.unsupervised.kernel_pca import KernelPCA
from daskkern.unsupervised.mmd import MMDTest, mmd_test
from daskkern.unsupervised.one_class_svm import OneClassSVM
from daskkern.unsupervised.spectral_clustering import SpectralClustering

__all__ = ["KernelDensity", "KernelKMeans", "KernelPCA", "MMDTest", "OneClassSVM", "SpectralClustering", "mmd_test"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])

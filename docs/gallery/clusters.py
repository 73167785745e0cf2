"""Clusters of any shape

Spectral clustering of two moons, without their labels.
"""

from matplotlib import pyplot
from sklearn.datasets import make_moons

from daskkern import SpectralClustering

X, _ = make_moons(200, noise=0.06, random_state=0)
labels = SpectralClustering(n_clusters=2, kernel="gaussian:0.15").fit_predict(X)

figure, axes = pyplot.subplots()
axes.scatter(*X.T, 9, labels, cmap="RdBu")

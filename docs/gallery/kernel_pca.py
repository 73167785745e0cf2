"""Circles unrolled

Two rings in the plane, and their first two components in the feature space of a Gaussian kernel.
"""

from matplotlib import pyplot
from sklearn.datasets import make_circles

from daskkern import KernelPCA

X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
Z = KernelPCA(n_components=2, kernel="gaussian:0.35").fit_transform(X)

figure, (before, after) = pyplot.subplots(1, 2, figsize=(8, 3.6))
for axes, points, title in ((before, X, "rows"), (after, Z, "components")):
    axes.scatter(*points.T, 8, y, cmap="RdBu")
    axes.set_title(title)

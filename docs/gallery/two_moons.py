"""A boundary that no line can draw

Two classes in the plane, and the probability of one of them as a logistic fit on 100 landmarks sees it.
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import make_moons

from daskkern import KernelClassifier, Landmarks

X, y = make_moons(500, noise=0.25, random_state=0)
model = KernelClassifier("gaussian:0.7", basis=Landmarks(100), loss="logistic", alpha=1e-3, max_epochs=200).fit(X, y)

across, up = np.meshgrid(np.linspace(-2, 3, 120), np.linspace(-1.5, 2, 90))
p = model.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[:, 1].reshape(across.shape)
figure, axes = pyplot.subplots()
axes.contourf(across, up, p, 20, cmap="RdBu", vmin=0, vmax=1, alpha=0.5)
axes.contour(across, up, p, [0.5], colors="black")
axes.scatter(*X.T, 9, y, cmap="RdBu")

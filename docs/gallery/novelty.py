"""What was not seen before

The scores of a one-class machine: within the line lies what is like the training rows.
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import make_blobs

from daskkern import OneClassSVM

X, _ = make_blobs(400, centers=[(-2, -1), (2, 1)], cluster_std=0.6, random_state=0)
model = OneClassSVM(kernel="gaussian:1", nu=0.05).fit(X)

across, up = np.meshgrid(np.linspace(-5, 5, 120), np.linspace(-4, 4, 90))
scores = model.decision_function(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
figure, axes = pyplot.subplots()
axes.contourf(across, up, scores, 20, cmap="Blues")
axes.contour(across, up, scores, [0], colors="#d9762b")
axes.scatter(*X.T, 6, color="black")

"""Intervals that hold what they promise

A regression with `calibrate=True`, and intervals that hold the truth with probability 0.9.
"""

import numpy as np
from matplotlib import pyplot

from daskkern import KernelRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-4, 4, (600, 1))
y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(600)
model = KernelRegressor("gaussian:0.8", alpha=1e-3, calibrate=True).fit(X, y)

x = np.linspace(-4, 4, 300)[:, None]
lower, upper = model.predict_interval(x, confidence=0.9).T
figure, axes = pyplot.subplots()
axes.scatter(X[:, 0], y, 5, color="#999999")
axes.fill_between(x[:, 0], lower, upper, color="#2f6fb5", alpha=0.2, label="90% of new rows")
axes.plot(x[:, 0], model.predict(x), color="#2f6fb5", label="prediction")
axes.legend(frameon=False)

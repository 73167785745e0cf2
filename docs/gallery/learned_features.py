"""Which columns matter

A target of two of ten columns. The metric that the fit learned finds them.
"""

import numpy as np

from daskkern import FeatureLearning, KernelRegressor, gradient_importance, plot

rng = np.random.default_rng(0)
X = rng.standard_normal((600, 10))
y = X[:, 2] * X[:, 7] + 0.1 * rng.standard_normal(600)
model = KernelRegressor("laplacian:median", learn_features=FeatureLearning()).fit(X, y)

plot.importances(gradient_importance(model, X))

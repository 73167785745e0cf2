"""Which classes are easy

ROC curves of each kind of wine against the others, from three of its columns.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from daskkern import KernelClassifier, plot

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)[:, :3]
model = KernelClassifier("gaussian:median", loss="logistic", max_epochs=100).fit(X[::2], y[::2])

plot.roc_curve(model, X[1::2], y[1::2])

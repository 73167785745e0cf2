"""Why the steps can be large

The leading eigenvalues of the kernel matrix, and what EigenPro's preconditioner makes of them.
"""

from sklearn.datasets import load_digits

from daskkern import KernelClassifier, Landmarks, plot
from daskkern.solvers import EigenPro

X, y = load_digits(return_X_y=True)
model = KernelClassifier("gaussian:median", basis=Landmarks(600), solver=EigenPro(), max_epochs=60)
model.fit(X, y)

plot.spectrum(model)

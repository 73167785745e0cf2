"""How a fit went

Training and validation loss over the epochs of a preconditioned stochastic gradient method.
"""

from sklearn.datasets import load_digits

from daskkern import KernelClassifier

X, y = load_digits(return_X_y=True)
model = KernelClassifier("gaussian:median", max_epochs=15)
model.fit(X[::2], y[::2], validation=(X[1::2], y[1::2]))

model.plot()

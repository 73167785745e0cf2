"""What is taken for what

The confusion matrix of 1,797 handwritten digits, half of them for training.
"""

from sklearn.datasets import load_digits

from daskkern import KernelClassifier, plot

X, y = load_digits(return_X_y=True)
model = KernelClassifier("laplacian:median").fit(X[::2], y[::2])

plot.confusion(model, X[1::2], y[1::2])

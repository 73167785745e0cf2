"""A straightforward implementation of Nystrom features in plain torch: ridge by Cholesky, or mini-batches with Adam."""

from typing import Any

import numpy as np
import torch

_ROWS = 4096
_BATCH, _EPOCHS, _STEP = 256, 10, 1e-2


class TorchNystrom:
    """Features ``k(x, Z) L^-T`` with ``L L^T = K_ZZ`` on uniform landmarks, and a linear model of them.

    "cholesky" solves the ridge problem exactly. "adam" minimises the squared hinge (squared loss for regression) in 10
    epochs of batches of 256 rows, with a cosine schedule of the step from 0.01 to 0.
    """

    def __init__(self, way: str, task: str, length_scale: float, n_landmarks: int, alpha: float) -> None:
        self._way, self._task, self._alpha = way, task, alpha
        self._length_scale, self._n_landmarks = length_scale, n_landmarks

    def fit(self, X: Any, y: Any) -> "TorchNystrom":
        torch.manual_seed(0)
        rows = torch.from_numpy(X)
        self._Z = rows[torch.randperm(len(rows))[: self._n_landmarks]]
        K = self._kernel(self._Z).double()
        factor = torch.linalg.cholesky(K + 1e-6 * torch.eye(len(K), dtype=K.dtype))
        self._whiten = torch.linalg.solve_triangular(factor, torch.eye(len(K), dtype=K.dtype), upper=False).T.float()
        targets = self._targets(y)
        self._mean = targets.mean(dim=0) if self._task == "regression" else torch.zeros(targets.shape[1])
        fitted = self._by_cholesky if self._way == "cholesky" else self._by_adam
        self._w = fitted(rows, targets - self._mean)
        return self

    def predict(self, X: Any) -> Any:
        scores = torch.cat([self._features(rows) @ self._w + self._mean for rows in torch.from_numpy(X).split(_ROWS)])
        if self._task == "regression":
            return scores[:, 0].numpy()
        return (scores.argmax(dim=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).long()).numpy()

    def _targets(self, y: Any) -> torch.Tensor:
        """Return numbers, or -1 and +1: one column for two classes, otherwise one per class."""
        if self._task == "regression":
            return torch.from_numpy(y)[:, None]
        n_classes = int(y.max()) + 1
        signs = np.where(y[:, None] == np.arange(n_classes), 1.0, -1.0).astype(np.float32)
        return torch.from_numpy(signs[:, 1:] if n_classes == 2 else signs)

    def _kernel(self, rows: torch.Tensor) -> torch.Tensor:
        squared = torch.cdist(rows, self._Z, compute_mode="use_mm_for_euclid_dist").square_()
        return squared.mul_(-1 / (2 * self._length_scale**2)).exp_()

    def _features(self, rows: torch.Tensor) -> torch.Tensor:
        return self._kernel(rows) @ self._whiten

    def _by_cholesky(self, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        p = len(self._Z)
        gram = torch.eye(p, dtype=torch.float64) * (self._alpha * len(rows))
        right = torch.zeros(p, targets.shape[1], dtype=torch.float64)
        for some, their in zip(rows.split(_ROWS), targets.split(_ROWS), strict=True):
            features = self._features(some)
            gram += features.T @ features
            right += features.T @ their
        return torch.cholesky_solve(right, torch.linalg.cholesky(gram)).float()

    def _by_adam(self, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        w = torch.zeros(len(self._Z), targets.shape[1], requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=_STEP)
        n_steps = _EPOCHS * -(-len(rows) // _BATCH)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
        for _ in range(_EPOCHS):
            for batch in torch.randperm(len(rows)).split(_BATCH):
                scores, wanted = self._features(rows[batch]) @ w, targets[batch]
                squared = self._task == "regression"
                misses = scores - wanted if squared else torch.relu(1 - scores * wanted)
                loss = (misses**2).sum() / len(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        return w.detach()

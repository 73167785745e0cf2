"""The display of a model: one line of text, a notebook table, a plot of its history."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daskkern.calibration import Calibration
from daskkern.display import html_facts, rounded, short
from daskkern.kernels import Kernel
from daskkern.monitor.formatting import format_bytes
from daskkern.monitor.history import History


class ShownModel:
    """The part of a model that people see; see :class:`daskkern.models.KernelModel`."""

    if TYPE_CHECKING:
        kernel: Kernel
        points: Any
        loss: str
        task: str
        classes: Any
        calibration: Calibration | None
        provenance: Any

        @property
        def history_(self) -> History: ...
        @property
        def nbytes(self) -> int: ...
        @property
        def n_features(self) -> int: ...
        @property
        def n_outputs(self) -> int: ...

    def __repr__(self) -> str:
        points = f"{self.points.shape[0]:,} points x {self.n_features:,} features"
        return f"<KernelModel: {self.task}, {points}, {short(rounded(str(self.kernel)), 60)}, loss {self.loss}>"

    def _repr_html_(self) -> str:
        settings = self.provenance.get("settings", {})
        solver = settings.get("solver", {}).get("name", "") if isinstance(settings, dict) else ""
        method = str(self.provenance.get("method", ""))  # of unsupervised estimators, which have no loss and solver
        classes = "" if self.classes is None else f"{len(self.classes)}: {', '.join(map(str, self.classes[:10]))}"
        history = self.history_
        last = (
            f"{len(history)} epoch{'s, the last' * (len(history) != 1)} with loss {history[-1].loss:.4g}"
            if len(history)
            else ""
        )
        facts = [
            ("task", self.task),
            ("kernel", self.kernel),
            ("method", method),
            ("loss", "" if method else self.loss),
            ("solver", "" if method else solver),
            ("points", f"{self.points.shape[0]:,} x {self.n_features:,} features"),
            ("outputs", self.n_outputs),
            ("classes", classes + ", ..." * (self.classes is not None and len(self.classes) > 10)),
            ("probabilities", "" if self.calibration is None else "calibrated"),
            ("history", last),
            ("size", format_bytes(self.nbytes)),
        ]
        return html_facts("KernelModel", facts)

    def plot(
        self, show: str | Sequence[str] = ("loss", "validation_loss"), against: str = "epoch", axes: Any = None
    ) -> Any:
        """Draw columns of the model's history; see :meth:`daskkern.monitor.history.History.plot`."""
        return self.history_.plot(show, against, axes, task=self.task)

"""Fitted models: prediction and the format on disk."""

from daskkern.models.kernel_model import KernelModel
from daskkern.models.store import is_model, load_model, save_model

__all__ = ["KernelModel", "is_model", "load_model", "save_model"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])

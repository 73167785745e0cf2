"""The metadata of a fit: its identifier, and who submitted it, from what, with which priority."""

import getpass
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from daskkern.errors import SpecError, without_secrets

_LONGEST = {
    "fit": 64,
    "name": 500,
    "owner": 500,
    "source": 10_000,
    "out": 10_000,
    "user": 200,
    "method": 1000,
    "task": 50,
}
"""Most characters of the texts of FitMetadata."""
_MOST_SETTINGS, _LONGEST_SETTING = 100, 500
_MOST_EPOCHS = 2**53
MOST_PRIORITY = 1_000_000
"""The highest priority of a fit; the lowest is its negative."""


@dataclass(frozen=True)
class FitMetadata:
    """The metadata of a fit.

    Attributes
    ----------
    fit : str
        Its identifier, 12 hexadecimal digits.
    name : str
        Its name on the dashboard.
    owner : str
        user@host of its submitter.
    source, out : str
        Where its rows come from, and where its model is written; "" if the model stays with the caller. URLs
        lose what may be secret: user, password, query and fragment.
    max_epochs : int
    detached : bool
        Whether it continues without the process that submitted it.
    user : str
        The user whose quota counts, as the submitter states it; "" if unknown.
    priority : int
        Fits of a higher priority get workers first; from ``-MOST_PRIORITY`` to ``MOST_PRIORITY``.
    method : str
        Kernel, loss, columns and penalty, in words; "" if unknown.
    task : str
        "classification", "multilabel" or "regression"; "" if unknown.
    settings : mapping from str to str
        The settings of the fit by their names, as people read them: for comparisons of fits.
    """

    fit: str
    name: str
    owner: str = ""
    source: str = ""
    out: str = ""
    max_epochs: int = 0
    detached: bool = False
    user: str = ""
    priority: int = 0
    method: str = ""
    task: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, most in _LONGEST.items():
            text: Any = getattr(self, name)
            if not isinstance(text, str) or len(text) > most:
                found = f"{len(text):,} characters" if isinstance(text, str) else type(text).__name__
                raise SpecError(f"the {name} of a fit is a text of at most {most:,} characters, not {found}")
        for name in ("source", "out"):  # shown to everyone who can see the dashboard
            object.__setattr__(self, name, without_secrets(getattr(self, name)))
        number: Any = self.max_epochs
        if type(number) is bool or not isinstance(number, Integral) or not 0 <= int(number) <= _MOST_EPOCHS:
            raise SpecError(f"max_epochs of a fit is a whole number from 0 to {_MOST_EPOCHS:,}, not {number!s:.50}")
        object.__setattr__(self, "settings", _checked_settings(self.settings))
        if type(self.detached) is not bool:
            raise SpecError("detached of a fit is True or False")
        check_priority(self.priority)

    def submitted_with(self, priority: int, user: str | None) -> "FitMetadata":
        """Return it with this priority and user; None leaves the user as it is."""
        return replace(self, priority=priority, user=self.user if user is None else user)


def _checked_settings(settings: Any) -> dict[str, str]:
    """Return settings as a new dict. SpecError for what is no mapping of a few short texts, as it is shown to all."""
    if not isinstance(settings, Mapping) or len(settings) > _MOST_SETTINGS:
        raise SpecError(f"the settings of a fit are a mapping of at most {_MOST_SETTINGS} texts")
    texts = [text for item in settings.items() for text in item]
    if any(not isinstance(text, str) or len(text) > _LONGEST_SETTING for text in texts):
        raise SpecError(f"the settings of a fit are texts of at most {_LONGEST_SETTING} characters")
    return dict(settings)


def check_priority(number: Any) -> None:
    """Raise SpecError for anything but a whole number within the limits."""
    if isinstance(number, bool) or not isinstance(number, Integral) or abs(int(number)) > MOST_PRIORITY:
        raise SpecError(
            f"got priority={number!s:.50}; expected a whole number from -{MOST_PRIORITY:,} to {MOST_PRIORITY:,}"
        )


def new_metadata(name: str) -> FitMetadata:
    """Return the metadata of a new fit of this process."""
    return FitMetadata(uuid.uuid4().hex[:12], name, owner(), user=login())


def owner() -> str:
    """Return user@host of this process."""
    return f"{login() or '?'}@{socket.gethostname()}"


def login() -> str:
    """Return the login name of this process, "" without one."""
    with suppress(OSError, KeyError, ImportError):  # a container may have no entry for its user
        return getpass.getuser()
    return ""

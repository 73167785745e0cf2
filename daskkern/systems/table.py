"""The table of published systems, by name. A new one is one row of ``explicit`` or ``kernel``."""

from daskkern.backend.plugins import unknown
from daskkern.systems.explicit import EXPLICIT
from daskkern.systems.kernel import KERNEL
from daskkern.systems.named import System

SYSTEMS: dict[str, System] = {row.name: row for row in (*EXPLICIT, *KERNEL)}


def system(name: str) -> System:
    """Return the system of that name; "EigenPro 2" is "eigenpro2". SpecError suggests the nearest, and lists all."""
    spelled = {_letters(known): row for known, row in SYSTEMS.items()}
    if _letters(name) in spelled:
        return spelled[_letters(name)]
    raise unknown("system", name, name, SYSTEMS)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())

"""Numbers as people write them in ``--set`` and in a settings file: YAML takes ``1e-3`` for text."""

from pathlib import Path

import pytest

from daskkern.cli.options.settings_file import from_assignments, from_file


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("-2E5", -2e5), ("1.5e+2", 150.0), ("3", 3), ("0.5", 0.5), ("e5", "e5")],
)
def test_powers_of_ten_are_numbers(tmp_path: Path, text: str, value: float | str) -> None:
    assert from_assignments((f"solver.l1={text}",), ()) == {"solver.l1": value}
    path = tmp_path / "fit.yaml"
    path.write_text(f"solver:\n  name: adagrad\n  l1: {text}\n")
    assert from_file(str(path), ("solver",)) == {"solver": "adagrad", "solver.l1": value}

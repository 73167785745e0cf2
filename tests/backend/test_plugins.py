"""Plug-ins: found by their entry points, loaded when they are asked for, refused in a sentence."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daskkern.backend.plugins import Registry
from daskkern.errors import SpecError
from daskkern.kernels import KERNELS, Gaussian, parse_kernel
from daskkern.landmarks import SELECTORS, parse_selector
from daskkern.losses import LOSSES, Squared, parse_loss
from daskkern.solvers import SOLVERS, EigenPro, check_fit, parse_solver

MODULE = """
from dataclasses import dataclass
from daskkern.kernels import Gaussian
from daskkern.landmarks import Uniform
from daskkern.losses import Squared
from daskkern.solvers import SGD

@dataclass(frozen=True)
class Other(SGD):
    name = "other_sgd"

@dataclass(frozen=True)
class Doubled(Squared):
    name = "doubled"

@dataclass(frozen=True, eq=False)
class Narrow(Gaussian):
    name = "narrow"

class Capital(Gaussian):
    name = "MyKernel"

class Plain(Uniform):
    name = "plain"

class Impostor(SGD):
    name = "eigenpro"

number = 3
"""
GOOD = {
    "daskkern.solvers": {"other_sgd": "offers:Other"},
    "daskkern.losses": {"doubled": "offers:Doubled"},
    "daskkern.kernels": {"narrow": "offers:Narrow"},
    "daskkern.landmarks": {"plain": "offers:Plain"},
}
TABLES: dict[str, Registry] = {
    "daskkern.solvers": SOLVERS,
    "daskkern.losses": LOSSES,
    "daskkern.kernels": KERNELS,
    "daskkern.landmarks": SELECTORS,
}

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Yield what installs a distribution with entry points, for the time of the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "offers.py").write_text(MODULE)

    def install(offers: dict[str, dict[str, str]], name: str = "offers") -> None:
        folder = tmp_path / f"{name}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        sections = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in offers.items()]
        (folder / "entry_points.txt").write_text("\n".join(sections))
        _forget()

    yield install
    monkeypatch.undo()
    sys.modules.pop("offers", None)
    _forget()


def _forget() -> None:
    for table in TABLES.values():
        table.forget()


def test_names_are_listed_without_an_import_and_loaded_on_demand(install: Install) -> None:
    install(GOOD)
    for group, table in TABLES.items():
        (name,) = GOOD[group]
        assert list(table)[-1] == name
        assert len(table) == len(list(table))
        assert name in table
    assert "offers" not in sys.modules
    offers = __import__("offers")
    assert parse_solver("other_sgd") == offers.Other()
    assert parse_loss("doubled") == offers.Doubled()
    assert parse_kernel("narrow:3.0") == offers.Narrow(3.0)
    assert isinstance(parse_selector("plain"), offers.Plain)


def test_words_name_a_kernel_with_capitals(install: Install) -> None:
    install({"daskkern.kernels": {"MyKernel": "offers:Capital"}})
    assert parse_kernel("2*MyKernel:3.0 + Gaussian:1") == 2.0 * KERNELS["MyKernel"].kernel(length_scale=3.0) + Gaussian(
        1.0
    )
    with pytest.raises(SpecError, match=r"kernel 'mykernel' is unknown; did you mean 'MyKernel'\?"):
        parse_kernel("mykernel")


def test_names_of_the_package_are_its_own(install: Install) -> None:
    install({"daskkern.solvers": {"eigenpro": "offers:Impostor"}})
    assert SOLVERS["eigenpro"] is EigenPro
    assert list(SOLVERS).count("eigenpro") == 1
    assert "offers" not in sys.modules


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("offers:Missing", r"cannot be loaded \(AttributeError: .*Missing.*\); repair the package, or uninstall it"),
        ("not_there:Thing", r"cannot be loaded \(ModuleNotFoundError: No module named 'not_there'\); repair"),
        ("offers:number", r"is not usable: got 3; expected a class derived from daskkern\.solvers\.Solver"),
        ("offers:Plain", r"is not usable: got <class 'offers\.Plain'>; expected a class derived from"),
        ("offers:Other", r"is not usable: got a class whose name is 'other_sgd' for the entry point 'odd'"),
    ],
)
def test_a_broken_one_is_a_sentence_and_leaves_the_rest_alone(install: Install, place: str, said: str) -> None:
    install({"daskkern.solvers": {"odd": place}})
    with pytest.raises(SpecError, match=rf"^the plug-in 'odd' of offers 1\.2 \({place}\) {said}"):
        parse_solver("odd")
    assert "odd" not in SOLVERS.working()
    with pytest.raises(SpecError, match=r"solvers for Linear\(\): .*sgd"):
        check_fit(SOLVERS["falkon"](), Squared(), "linear")


def test_a_name_that_two_packages_offer_is_refused(install: Install) -> None:
    install({"daskkern.solvers": {"other_sgd": "offers:Other"}}, "one")
    install({"daskkern.solvers": {"other_sgd": "offers:Impostor"}}, "two")
    with pytest.raises(SpecError, match=r"from more than one package: .*one 1\.2.*two 1\.2.*; uninstall all but one"):
        parse_solver("other_sgd")


def test_a_name_that_nobody_offers_lists_plug_ins_too(install: Install) -> None:
    install(GOOD)
    with pytest.raises(SpecError, match=r"did you mean 'other_sgd'\? Known solvers: auto, eigenpro, .*, other_sgd$"):
        parse_solver("othr_sgd")
    with pytest.raises(KeyError):
        SOLVERS["nobody"]

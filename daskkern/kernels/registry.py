"""The registry of kernels, and the parser of their one-word notation: ``gaussian:5``, ``laplacian:median``.

Further parameters follow by name: ``laplacian_pq:median,p=1.5,q=1``.
Words make sums and products: ``gaussian:5+linear``, ``2*gaussian:5 + 0.5*laplacian:1``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add, mul

from daskkern.backend.plugins import Registry, checked_class, unknown
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.coordinate import Coordinate
from daskkern.kernels.columns.fastfood import Fastfood
from daskkern.kernels.columns.locally_linear import LocalFeatures
from daskkern.kernels.columns.partition_tree import PartitionTree
from daskkern.kernels.columns.partitioned import Partitioned
from daskkern.kernels.columns.regenerated_features import Drawn
from daskkern.kernels.columns.tensor_sketch import TensorSketch
from daskkern.kernels.columns.tree_average import TreeAverage
from daskkern.kernels.functions.activations import Neuron
from daskkern.kernels.functions.algebra import Product, Scaled, Sum
from daskkern.kernels.functions.arc_cosine import ArcCosine
from daskkern.kernels.functions.auto import AutoKernel
from daskkern.kernels.functions.cauchy import Cauchy
from daskkern.kernels.functions.chi_squared import AdditiveChiSquared, ChiSquared
from daskkern.kernels.functions.differences.additive import AdditiveLaplacian
from daskkern.kernels.functions.differences.power_laplacian import L1Laplacian, PowerLaplacian
from daskkern.kernels.functions.gaussian import Gaussian
from daskkern.kernels.functions.inverse_polynomial import InversePolynomial
from daskkern.kernels.functions.laplacian import Laplacian
from daskkern.kernels.functions.linear import LinearKernel
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.neural_tangent import NeuralTangent
from daskkern.kernels.functions.polynomial import Polynomial
from daskkern.kernels.functions.rational_quadratic import RationalQuadratic


@dataclass(frozen=True)
class Entry:
    """A kernel, the parameter that follows its name after a colon without a name, and those that the name decides."""

    kernel_class: type[Kernel]
    parameter: str | None
    decided: Mapping[str, float] = field(default_factory=dict)

    def kernel(self, **parameters: object) -> Kernel:
        """Return the kernel with `parameters`."""
        return self.kernel_class(**{**self.decided, **parameters})

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters that are left to choose."""
        return frozenset(item.name for item in fields(self.kernel_class) if item.init) - set(self.decided)


_OWN: dict[str, Entry] = {
    "gaussian": Entry(Gaussian, "length_scale"),
    "laplacian": Entry(Laplacian, "length_scale"),
    "laplacian_l1": Entry(L1Laplacian, "length_scale"),
    "laplacian_pq": Entry(PowerLaplacian, "length_scale"),
    "additive_laplacian": Entry(AdditiveLaplacian, "length_scale"),
    "cauchy": Entry(Cauchy, "length_scale"),
    "matern12": Entry(Matern, "length_scale", {"nu": 0.5}),
    "matern32": Entry(Matern, "length_scale", {"nu": 1.5}),
    "matern52": Entry(Matern, "length_scale", {"nu": 2.5}),
    "rational_quadratic": Entry(RationalQuadratic, "length_scale"),
    "inverse_polynomial": Entry(InversePolynomial, None),
    "arc_cosine": Entry(ArcCosine, "degree"),
    "neural_tangent": Entry(NeuralTangent, "depth"),
    "polynomial": Entry(Polynomial, "degree"),
    "linear": Entry(LinearKernel, None),
    "chi2": Entry(ChiSquared, "gamma"),
    "additive_chi2": Entry(AdditiveChiSquared, None),
}


def _checked(name: str, found: object) -> Entry:
    """Return the entry for a kernel of a plug-in, whose first parameter may follow its name."""
    kernel = checked_class(name, found, Kernel, "daskkern.kernels.Kernel")
    return Entry(kernel, next((item.name for item in fields(kernel)), None))


KERNELS: Registry[Entry] = Registry(_OWN, "daskkern.kernels", _checked)
"""Kernels by name: the table above, and the classes that installed packages offer as ``daskkern.kernels``."""
COLUMN_FUNCTIONS: dict[str, Entry] = {
    "coordinate": Entry(Coordinate, None),
    "locally_linear": Entry(LocalFeatures, None),
    "neuron": Entry(Neuron, None),
    "tensor_sketch": Entry(TensorSketch, None),
}
"""Columns of models that are not kernels: read from a model, not from words."""

_SCIKIT_LEARN = {"rbf": ("gaussian", "median"), "poly": ("polynomial", "3")}
"""Names of kernels in scikit-learn: ours, and the parameter where none is given."""
_LENGTH = "length_scale"
_PLUS = re.compile(r"(?<![0-9.][eE])\+")  # but not the one in 1e+5


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that words such as ``"gaussian:5"``, ``"laplacian:median"`` or ``"2*cauchy:3+linear"`` mean.

    Other parameters follow the first one, or the colon, by their names: ``"rational_quadratic:median,alpha=0.5"``.

    Without a number, a length scale is the median distance of rows: ``"gaussian"`` and ``"rbf"`` are
    ``"gaussian:median"``. ``"poly"`` is ``"polynomial:3"``.

    ``"auto"``, alone, is the one that the rows of a fit choose.

    Raises
    ------
    SpecError
        For an unknown name, a parameter that is not a number, or a parameter where the kernel takes none.
    """
    if text.strip().lower() == AutoKernel.name:
        return AutoKernel()
    return reduce(add, [_parse_term(term) for term in _PLUS.split(text)])


def from_spec(spec: Mapping[str, object]) -> Kernel:
    """Rebuild a kernel from :meth:`Kernel.spec`; SpecError names an unknown kernel or parameter."""
    if not isinstance(spec, Mapping):
        raise SpecError(f"a kernel is written as a mapping with its name and parameters; found {spec!r:.60}")
    name = str(spec.get("name", ""))
    parameters = {key: value for key, value in spec.items() if key != "name"}
    if name == AutoKernel.name and not set(parameters) - {"categories"}:
        return AutoKernel(**parameters)  # type: ignore[arg-type]
    if name in ("sum", "product", "scaled", "drawn", "fastfood", "partitioned", "tree_average"):
        return _composite(name, parameters)
    entry = COLUMN_FUNCTIONS.get(name) or _entry(name)
    for key, value in parameters.items():
        if key not in entry.parameters or isinstance(value, bool) or not isinstance(value, int | float | str | list):
            raise SpecError(
                f"got {key}={value!r:.60} for the {name} kernel, which takes {sorted(entry.parameters) or 'nothing'}"
            )
    try:
        return entry.kernel(**parameters)
    except (TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"the {name} kernel cannot be made from {parameters}: {error}") from None


def spec_or_name(kernel: Kernel) -> Spec:
    """Return the spec, or only the name of a kernel that has none: for records, not for rebuilding."""
    try:
        return kernel.spec()
    except SpecError:
        return {"name": kernel.name}


def short_name(kernel: Kernel) -> str:
    """Return ``gaussian:median`` or ``laplacian:1.749``, and the name alone of a kernel without one length scale."""
    scale = getattr(kernel, "length_scale", None)
    if kernel.name == AutoKernel.name or not isinstance(scale, str | float | int):
        return kernel.name
    return f"{kernel.name}:{scale}" if isinstance(scale, str) else f"{kernel.name}:{scale:.4g}"


def _composite(name: str, parameters: Mapping[str, object]) -> Kernel:
    takes = {
        "scaled": {"kernel", "factor"},
        "drawn": {"kernel", "seed", "width", "n_features"},
        "fastfood": {"kernel", "width", "seed", "n_features"},
        "partitioned": {"kernel", "tree"},
        "tree_average": {"kernel", "trees", "n_features"},
    }
    wanted = takes.get(name, {"kernels"})
    if set(parameters) != wanted or not isinstance(parameters.get("kernels", []), list):
        raise SpecError(f"the {name} of kernels takes {sorted(wanted)}; found {dict(parameters)!r:.60}")
    if name == "scaled":
        return Scaled(from_spec(parameters["kernel"]), parameters["factor"])  # type: ignore[arg-type]
    if name in ("drawn", "fastfood"):
        own = {key: value for key, value in parameters.items() if key != "kernel"}
        return (Drawn if name == "drawn" else Fastfood)(from_spec(parameters["kernel"]), **own)  # type: ignore[arg-type]
    if name == "partitioned":
        return Partitioned(from_spec(parameters["kernel"]), _tree(parameters["tree"]))  # type: ignore[arg-type]
    if name == "tree_average":
        trees = parameters["trees"]
        if not isinstance(trees, list):
            raise SpecError(f"the trees of a {name} kernel are written as a list; found {trees!r:.60}")
        own_trees = tuple(_tree(tree) for tree in trees)
        return TreeAverage(from_spec(parameters["kernel"]), own_trees, parameters["n_features"])  # type: ignore[arg-type]
    members = tuple(from_spec(member) for member in parameters["kernels"])  # type: ignore[attr-defined]
    return Sum(members) if name == "sum" else Product(members)


def _tree(value: object) -> PartitionTree:
    names = {item.name for item in fields(PartitionTree)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise SpecError(f"a partition tree is written as a mapping with {sorted(names)}; found {value!r:.60}")
    try:
        return PartitionTree(**value)
    except (TypeError, ValueError) as error:
        raise SpecError(f"the tree of a partitioned kernel cannot be made: {error}") from None


def _parse_term(text: str) -> Kernel:
    """Return the product of words and numbers between stars."""
    parts = [part.strip() for part in text.split("*")]
    numbers = [float(part) for part in parts if _is_number(part)]
    words = [_parse_word(part) for part in parts if not _is_number(part)]
    if not words:
        raise SpecError(f"got kernel {text!r}, which has no name; write for example 2*gaussian:5")
    product: Kernel = reduce(mul, words)
    return reduce(mul, numbers) * product if numbers else product


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_word(text: str) -> Kernel:
    name, colon, value = text.partition(":")
    name = name.strip()
    name = name if name in KERNELS else name.lower()
    if name in _SCIKIT_LEARN:
        name, without = _SCIKIT_LEARN[name]
        colon, value = ":", value or without
    entry = _entry(name)
    usual = {_LENGTH: "median"} if name in _OWN and entry.parameter == _LENGTH else {}
    if not colon:
        return from_spec({"name": name, **usual})
    if entry.parameter is None:
        raise SpecError(f"got kernel {text!r}, but {name} takes no parameter; write {name!r}")
    parameters: dict[str, float | str] = {}
    for at, part in enumerate(value.split(",")):
        key, equals, number = part.rpartition("=")
        if not equals and at:
            raise SpecError(f"got kernel {text!r}, but {part!r} has no name; write NAME=NUMBER, such as q=0.5")
        key = key.strip() if equals else entry.parameter
        if key in parameters:
            raise SpecError(f"got kernel {text!r}, which gives {key} twice; give it once")
        parameters[key] = _number(text, number.strip())
    return from_spec({"name": name, **usual, **parameters})


def _entry(name: str) -> Entry:
    if name in KERNELS:
        return KERNELS[name]
    raise unknown("kernel", name, name, KERNELS, default=AutoKernel.name)


def _number(text: str, value: str) -> float | str:
    if value == "median":
        return value
    try:
        return float(value)
    except ValueError:
        raise SpecError(f"got kernel {text!r}, but {value!r} is not a number; write for example gaussian:5") from None

"""The systems that the field has published, by name. A new one is one row."""

import difflib

from daskkern.basis import AllRows, Landmarks, NystromFeatures, RandomFeatures
from daskkern.errors import SpecError
from daskkern.solvers import PCG, SGD, Direct, EigenPro, Falkon, NystromSGD
from daskkern.systems.named import System

_LINEAR, _RANDOM, _ONLINE, _KERNEL = "linear", "random features", "online and budgeted", "Nystrom and full kernel"

_ROWS = (
    System(
        "eigenpro",
        "SGD on all rows, the top eigendirections of a subsample damped, exponent 1",
        "Ma and Belkin, NeurIPS 2017",
        _KERNEL,
        EigenPro(rho=1.0),
        AllRows(),
    ),
    System(
        "eigenpro2",
        "EigenPro with exponent 0.95 and batch and step chosen from the spectrum",
        "Ma and Belkin, MLSys 2019",
        _KERNEL,
        EigenPro(step_scale=1.5),
        AllRows(),
    ),
    System(
        "eigenpro4",
        "EigenPro on p centres with delayed projections",
        "Abedsoltan et al., NeurIPS 2025",
        _KERNEL,
        EigenPro(step_scale=1.5),
        Landmarks(10_000),
        classification="squared_hinge",
    ),
    System(
        "nystrom_sgd",
        "conditioned SGD in the eigenfeatures of the Nystrom kernel",
        "Pfahler and Morik, ECML PKDD 2018",
        _KERNEL,
        NystromSGD(),
        Landmarks(2000),
        classification="squared_hinge",
    ),
    System(
        "falkon",
        "preconditioned conjugate gradient on landmarks",
        "Rudi, Carratino and Rosasco, NeurIPS 2017",
        _KERNEL,
        Falkon(),
        Landmarks(10_000),
        alpha=1e-7,
        max_epochs=20,
    ),
    System(
        "falkon_logistic",
        "Newton's method, its systems solved by Falkon",
        "Marteau-Ferey, Bach and Rudi, NeurIPS 2019",
        _KERNEL,
        Falkon(),
        Landmarks(10_000),
        classification="logistic",
        regression=None,
        alpha=1e-7,
    ),
    System(
        "pcg",
        "kernel ridge on all rows by preconditioned conjugate gradient",
        "Avron, Clarkson and Woodruff, SIMAX 2017; Frangella, Tropp and Udell, SIMAX 2023",
        _KERNEL,
        PCG(),
        AllRows(),
        alpha=1e-7,
        max_epochs=30,
    ),
    System(
        "krls",
        "regularised least squares on all rows, by Cholesky",
        "Rifkin, Yeo and Poggio, 2003",
        _KERNEL,
        Direct(),
        AllRows(),
        alpha=1e-7,
        max_epochs=1,
    ),
    System(
        "asset",
        "averaged SGD for a support vector machine on Nystrom features",
        "Lee and Wright, 2011",
        _KERNEL,
        SGD("inverse_root", averaging=0.5),
        NystromFeatures(1000),
        classification="hinge",
        regression=None,
        alpha=1e-6,
        batch_size=32,
        max_epochs=20,
    ),
    System(
        "sgd_rf",
        "SGD on random features",
        "Rahimi and Recht, NeurIPS 2007; Carratino, Rudi and Rosasco, NeurIPS 2018",
        _RANDOM,
        SGD(),
        RandomFeatures(4000),
        max_epochs=20,
    ),
    System(
        "random_kitchen_sinks",
        "ridge regression on random features",
        "Rahimi and Recht, NeurIPS 2008",
        _RANDOM,
        Direct(),
        RandomFeatures(4000),
        alpha=1e-7,
        max_epochs=1,
    ),
    System(
        "elm",
        "extreme learning machine: a random hidden layer, and ridge regression on it",
        "Huang, Zhu and Siew, 2006",
        _RANDOM,
        Direct(),
        RandomFeatures(4000, "sigmoid"),
        alpha=1e-7,
        max_epochs=1,
    ),
)

SYSTEMS: dict[str, System] = {row.name: row for row in _ROWS}


def system(name: str) -> System:
    """Return the system of that name. SpecError names the nearest, and all."""
    if name in SYSTEMS:
        return SYSTEMS[name]
    close = difflib.get_close_matches(name, SYSTEMS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise SpecError(f"system {name!r} is unknown{hint} Known systems: {', '.join(SYSTEMS)}")

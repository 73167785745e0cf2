"""Systems over features: linear models, random features, Nystrom features."""

from daskkern.basis import DoublyStochastic, Linear, LocallyLinear, NystromFeatures, RandomFeatures
from daskkern.landmarks import KMeans
from daskkern.solvers import (
    AMM,
    S2GD,
    SAG,
    SARAH,
    SDCA,
    SGD,
    SVRG,
    CoordinateDescent,
    Direct,
    DoublySGD,
    EigenPro,
    MixedGradient,
    Pegasos,
)
from daskkern.systems.named import System

_LINEAR, _RANDOM, _KERNEL = "linear", "random features", "Nystrom and full kernel"
_ONLINE = "online and budgeted"
_RF, _NF = RandomFeatures(4000), NystromFeatures(1000)

EXPLICIT = (
    System(
        "linear_eigenpro", "SGD on the features, the top directions of their covariance damped",
        "Ma and Belkin, NeurIPS 2017", _LINEAR, EigenPro(rho=1.0), Linear(), "squared_hinge", max_epochs=20,
    ),
    System(
        "pegasos", "stochastic subgradients with steps 1 / (alpha t) for a linear support vector machine",
        "Shalev-Shwartz, Singer, Srebro and Cotter, Math. Programming 2011", _LINEAR,
        Pegasos(project=True, averaging=0.5), Linear(), "hinge", None, alpha=1e-4, max_epochs=20,
    ),
    System(
        "sdca", "dual coordinate ascent for a linear model, a duality gap as its certificate",
        "Shalev-Shwartz and Zhang, JMLR 2013", _LINEAR, SDCA(), Linear(), "hinge", "squared", alpha=1e-4, max_epochs=20,
    ),
    System(
        "sag", "stochastic average gradient: a remembered slope for each row",
        "Schmidt, Le Roux and Bach, Math. Programming 2017", _LINEAR,
        SAG("sag"), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=30,
    ),
    System(
        "saga", "SAG without its bias", "Defazio, Bach and Lacoste-Julien, NeurIPS 2014", _LINEAR,
        SAG("saga"), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=30,
    ),
    System(
        "svrg", "SGD corrected by the full gradient at a point that is renewed now and then",
        "Johnson and Zhang, NeurIPS 2013", _LINEAR, SVRG(), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=20,
    ),
    System(
        "s2gd", "SVRG with a random number of steps in each epoch", "Konecny and Richtarik, 2013", _LINEAR,
        S2GD(), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=20,
    ),
    System(
        "sarah", "SVRG with gradients that are corrected recursively",
        "Nguyen, Liu, Scheinberg and Takac, ICML 2017", _LINEAR,
        SARAH(), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=20,
    ),
    System(
        "mixed_gradient", "SVRG within a ball that holds the optimum, its iterates averaged",
        "Zhang, Mahdavi and Jin, NeurIPS 2013", _LINEAR,
        MixedGradient(), Linear(), "logistic", "squared", alpha=1e-5, max_epochs=20,
    ),
    System(
        "lasso", "coordinate descent for an L1 penalty: sparse linear models, logistic ones for classes",
        "Friedman, Hastie and Tibshirani, 2010; Shalev-Shwartz and Tewari, JMLR 2011", _LINEAR,
        CoordinateDescent(l1=1e-3), Linear(), "logistic", "squared", max_epochs=30,
    ),
    System(
        "amm", "adaptive multi-hyperplane machine: several weights a class, the best of which speaks for it",
        "Wang, Djuric, Crammer and Vucetic, KDD 2011", _ONLINE,
        AMM(averaging=0.5), Linear(), "multiclass_hinge", None, alpha=1e-4, max_epochs=20,
    ),
    System(
        "locally_linear_svm", "linear support vector machines around 100 anchors, blended between them",
        "Ladicky and Torr, ICML 2011", _LINEAR, SDCA(), LocallyLinear(), "hinge", None, alpha=1e-5, max_epochs=20,
    ),
    System(
        "eigenpro_rf", "EigenPro on random features, exponent 1 and damping factor 1/4",
        "Ma and Belkin, NeurIPS 2017", _RANDOM, EigenPro(rho=1.0, tau=0.25), _RF, max_epochs=20,
    ),
    System(
        "sgd_rf", "SGD on random features",
        "Rahimi and Recht, NeurIPS 2007; Carratino, Rudi and Rosasco, NeurIPS 2018", _RANDOM, SGD(), _RF, max_epochs=20,
    ),
    System(
        "random_kitchen_sinks", "ridge regression on random features", "Rahimi and Recht, NeurIPS 2008", _RANDOM,
        Direct(), _RF, alpha=1e-7, max_epochs=1,
    ),
    System(
        "elm", "extreme learning machine: a random hidden layer, and ridge regression on it",
        "Huang, Zhu and Siew, Neurocomputing 2006", _RANDOM,
        Direct(), RandomFeatures(4000, "sigmoid"), alpha=1e-7, max_epochs=1,
    ),
    System(
        "r_pegasos", "Pegasos on random features", "Dai et al., NeurIPS 2014", _RANDOM,
        Pegasos(averaging=0.5), _RF, "hinge", None, alpha=1e-5, max_epochs=20,
    ),
    System(
        "r_sdca", "dual coordinate ascent on random features", "Dai et al., NeurIPS 2014", _RANDOM,
        SDCA(), _RF, "hinge", "squared", alpha=1e-6,
    ),
    System(
        "doubly_ridge", "doubly stochastic gradients: new random features with every batch, drawn again when needed",
        "Dai et al., NeurIPS 2014", _RANDOM,
        DoublySGD(), DoublyStochastic(16), alpha=1e-5, batch_size=64, max_epochs=20,
    ),
    System(
        "doubly_svm", "doubly stochastic gradients for a support vector machine", "Dai et al., NeurIPS 2014", _RANDOM,
        DoublySGD(), DoublyStochastic(16), "hinge", None, alpha=1e-5, batch_size=64, max_epochs=20,
    ),
    System(
        "doubly_logistic", "doubly stochastic gradients for logistic regression", "Dai et al., NeurIPS 2014", _RANDOM,
        DoublySGD(), DoublyStochastic(16), "logistic", None, alpha=1e-5, batch_size=64, max_epochs=20,
    ),
    System(
        "n_pegasos", "Pegasos on Nystrom features", "Dai et al., NeurIPS 2014", _KERNEL,
        Pegasos(averaging=0.5), _NF, "hinge", None, alpha=1e-5, max_epochs=20,
    ),
    System(
        "n_sdca", "dual coordinate ascent on Nystrom features", "Dai et al., NeurIPS 2014", _KERNEL,
        SDCA(), _NF, "hinge", "squared", alpha=1e-6,
    ),
    System(
        "asset", "averaged SGD for a support vector machine on Nystrom features", "Lee and Wright, 2011", _KERNEL,
        SGD("inverse_root", 16.0, averaging=0.5), _NF, "hinge", None, alpha=1e-6, batch_size=8, max_epochs=20,
    ),
    System(
        "llsvm", "a linear support vector machine on Nystrom features of k-means landmarks",
        "Zhang, Lan, Wang and Moerchen, AISTATS 2012", _KERNEL,
        SDCA(), NystromFeatures(1000, KMeans()), "hinge", None, alpha=1e-6,
    ),
)  # fmt: skip
"""A row a system. Losses: for classification, for regression."""

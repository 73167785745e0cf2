"""Systems over kernel columns: landmarks, or all rows."""

from daskkern.basis import AllRows, Landmarks, LocalRows
from daskkern.feature_learning import FeatureLearning
from daskkern.solvers import (
    BSGD,
    PCG,
    SDCA,
    SVM,
    ASkotch,
    BlockCD,
    Direct,
    EigenPro,
    Falkon,
    LocalRidge,
    Norma,
    NystromSGD,
    Pegasos,
)
from daskkern.systems.named import System

_ONLINE, _KERNEL = "online and budgeted", "Nystrom and full kernel"

KERNEL = (
    System(
        "eigenpro",
        # On 3,000 rows of Adult the paper's EigenPro(4800, 160, rho=1.0) took 64 s instead of 8 s, for errors of 16.8%
        # and 16.9%; on 300 rows its 160 directions raise the error from 18.0% to 21.4%.
        "SGD on all rows, the top eigendirections of 2,000 rows damped, exponent 1 (the paper's 4,800 take longer and "
        "err as much)",
        "Ma and Belkin, NeurIPS 2017", _KERNEL, EigenPro(rho=1.0), AllRows(),
    ),
    System(
        "eigenpro2", "EigenPro with exponent 0.95, batch and step chosen from the spectrum",
        "Ma and Belkin, MLSys 2019", _KERNEL, EigenPro(step_scale=1.5), AllRows(),
    ),
    System(
        "conditioned_sgd", "EigenPro with exponent 1/2 for losses of classification",
        "Pfahler and Morik, ECML PKDD 2018", _KERNEL, EigenPro(rho=0.5), AllRows(), "squared_hinge",
    ),
    System(
        "eigenpro4", "EigenPro on p centres with delayed projections", "Abedsoltan et al., NeurIPS 2025", _KERNEL,
        EigenPro(step_scale=1.5), Landmarks(10_000), "squared_hinge",
    ),
    System(
        "nystrom_sgd", "conditioned SGD in the eigenfeatures of the Nystrom kernel",
        "Pfahler and Morik, ECML PKDD 2018", _KERNEL, NystromSGD(), Landmarks(2000), "squared_hinge",
    ),
    System(
        "falkon", "preconditioned conjugate gradient on landmarks", "Rudi, Carratino and Rosasco, NeurIPS 2017",
        _KERNEL, Falkon(), Landmarks(10_000), alpha=1e-7, max_epochs=20,
    ),
    System(
        "falkon_logistic", "Newton's method, its systems solved by Falkon",
        "Marteau-Ferey, Bach and Rudi, NeurIPS 2019", _KERNEL,
        Falkon(), Landmarks(10_000), "logistic", None, alpha=1e-7,
    ),
    System(
        "rfm", "kernel ridge on landmarks, the metric of its kernel learned from its gradients on sampled rows",
        "Radhakrishnan, Beaglehole, Pandit and Belkin, Science 2024", _KERNEL,
        Falkon(), Landmarks(10_000), alpha=1e-7, max_epochs=20, kernel="laplacian:median",
        learn_features=FeatureLearning("full"),
    ),
    System(
        "xrfm", "kernel ridge in the leaves of a tree, whose cuts and kernel follow a metric learned on sampled rows",
        "Beaglehole, Holzmueller, Radhakrishnan and Belkin, 2025", _KERNEL,
        LocalRidge(), LocalRows(), alpha="auto", max_epochs=1, kernel="auto", learn_features=FeatureLearning(),
    ),
    System(
        "pcg", "kernel ridge on all rows by preconditioned conjugate gradient",
        "Avron, Clarkson and Woodruff, SIMAX 2017; Frangella, Tropp and Udell, SIMAX 2023", _KERNEL,
        PCG(), AllRows(), alpha=1e-6, max_epochs=30,
    ),
    System(
        "krls", "regularised least squares on all rows, by Cholesky", "Rifkin, Yeo and Poggio, 2003", _KERNEL,
        Direct(), AllRows(), alpha=1e-7, max_epochs=1,
    ),
    System(
        "block_coordinate_descent", "kernel ridge on all rows, a block of coefficients solved at a time",
        "Tu, Roelofs, Venkataraman and Recht, 2016", _KERNEL, BlockCD(), AllRows(), alpha=1e-7,
    ),
    System(
        "askotch", "accelerated sketch and project: block steps through Nystrom approximations of the blocks",
        "Rathore, Frangella, Udell et al., 2024", _KERNEL, ASkotch(), AllRows(), alpha=1e-7, max_epochs=20,
    ),
    System(
        "k_sdca", "dual coordinate ascent on all rows: a support vector machine with a certificate",
        "Shalev-Shwartz and Zhang, JMLR 2013", _KERNEL, SDCA(), AllRows(), "hinge", "squared", alpha=1e-6,
    ),
    System(
        "svm", "a support vector machine on all rows to the duality gap, kernel rows in memory",
        "Joachims, 1999; Fan, Chen and Lin, JMLR 2005; Wen et al., JMLR 2018", _KERNEL,
        SVM(), AllRows(), "hinge", "epsilon_insensitive", alpha=1e-5, max_epochs=1,
    ),
    System(
        "kernel_pegasos", "Pegasos on all rows, its coefficients counts of margin violations",
        "Shalev-Shwartz et al., Math. Programming 2011", _ONLINE,
        Pegasos(averaging=0.5), AllRows(), "hinge", None, alpha=1e-5,
    ),
    System(
        "norma", "online kernel learning: a term for each row met, all of them shrinking",
        "Kivinen, Smola and Williamson, IEEE TSP 2004", _ONLINE,
        Norma("constant", averaging=0.5), AllRows(), "hinge", "squared", alpha=1e-6,
    ),
    System(
        "bsgd", "Pegasos on a budget of support points, which are merged", "Wang, Crammer and Vucetic, JMLR 2012",
        _ONLINE, BSGD(), Landmarks(500), "hinge", None, alpha=1e-4,
    ),
)  # fmt: skip
"""A row a system. Losses: for classification, for regression."""

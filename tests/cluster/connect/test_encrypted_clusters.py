"""A cluster with TLS stays encrypted from end to end, and whoever has no part in it is told so in one sentence."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
import trustme
from distributed import Client, LocalCluster
from distributed.security import Security
from sklearn.datasets import load_digits

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.cli.main import main
from daskkern.cluster.connect.clients import Certificates, client_at
from daskkern.cluster.connect.local import connect
from daskkern.cluster.gang.gang import run_gang
from daskkern.cluster.gang.worker_plugin import CollectivesPlugin
from daskkern.errors import ClusterError, DaskkernError, SpecError
from daskkern.kernels import Gaussian
from tests.support import ranks
from tests.support.cluster import local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a certificate that it signed, and another authority."""
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "key.pem")
    stranger = trustme.CA().issue_cert("localhost")
    stranger.private_key_pem.write_to_path(folder / "other_key.pem")
    return folder


@pytest.fixture(scope="module")
def files(keys: Path) -> Certificates:
    return Certificates(str(keys / "ca.pem"), str(keys / "cert.pem"), str(keys / "key.pem"))


@pytest.fixture(scope="module")
def encrypted(files: Certificates) -> Iterator[Client]:
    security = Security(
        tls_ca_file=files.ca,
        require_encryption=True,
        **{f"tls_{role}_{what}": getattr(files, what)
           for role in ("client", "scheduler", "worker") for what in ("cert", "key")},
    )  # fmt: skip
    with local_cluster(2, security=security, protocol="tls://") as client:
        yield client


@pytest.fixture(scope="module")
def address(encrypted: Client) -> str:
    return str(encrypted.scheduler.address)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("encrypted")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", scale="minmax")
    return str(folder / "digits.zarr")


def test_every_connection_of_the_collectives_is_encrypted(encrypted: Client) -> None:
    for addresses in run_gang(encrypted, ranks.ways_of_messages, None, name="encrypted"):
        assert len(addresses) >= 4
        assert {address.split("://")[0] for address in addresses} == {"tls"}


@pytest.mark.repeated
def test_a_fit_gives_the_model_of_a_cluster_without_tls(encrypted: Client, client2: Client, store: str) -> None:
    settings = {"kernel": Gaussian(1.5), "basis": Landmarks(200), "max_epochs": 2}
    ours = KernelClassifier(**settings, client=encrypted).fit(store)
    plain = KernelClassifier(**settings, client=client2).fit(store)
    np.testing.assert_array_equal(ours.dual_coef_, plain.dual_coef_)


@pytest.mark.long
def test_a_cluster_object_brings_its_certificates(encrypted: Client, store: str) -> None:
    assert isinstance(encrypted.cluster, LocalCluster)
    model = KernelClassifier(Gaussian(1.5), basis=Landmarks(200), max_epochs=2, client=encrypted.cluster).fit(store)
    assert model.score(store) > 0.9


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["address", "file"])
def test_the_command_line_fits_on_an_encrypted_cluster(
    form: str, address: str, files: Certificates, store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scheduler.json").write_text(f'{{"address": "{address}"}}')
    where = {"address": ["--scheduler", address], "file": ["--scheduler-file", str(tmp_path / "scheduler.json")]}
    tls = ["--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]
    fit = ["fit", store, "--kernel", "gaussian:1.5", "--landmarks", "100", "--epochs", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*fit, "--out", str(tmp_path / "m.zarr"), *where[form], *tls])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert f"cluster {address}" in out + err


@pytest.mark.repeated
def test_a_detached_fit_on_an_encrypted_cluster_is_followed(
    address: str, files: Certificates, store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--scheduler", address, "--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]
    out = str(tmp_path / "m.zarr")
    with pytest.raises(SystemExit) as ended:
        main(["fit", store, "--landmarks", "100", "--epochs", "1", "--detach", "--out", out, *where])
    said, err = capfd.readouterr()
    assert ended.value.code == 0, err
    line = next(line for line in said.splitlines() if "daskkern watch" in line)  # as it is told to be typed
    with pytest.raises(SystemExit) as ended:
        main(line.split()[1:])
    said, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert "finished" in said
    assert daskkern.load(out).predict(np.zeros((1, 64))).shape == (1,)


@pytest.mark.repeated
def test_the_handle_of_a_fit_connects_anew_with_the_certificates(encrypted: Client, store: str, tmp_path: Path) -> None:
    estimator = KernelClassifier(Gaussian(1.5), basis=Landmarks(100), max_epochs=1, client=encrypted.cluster)
    handle = estimator.fit(store, detach=True, out=tmp_path / "m.zarr")
    assert handle.result().scores(np.zeros((1, 64))).shape == (1, 10)


def refused(address: str, tls: Certificates | None) -> str:
    with pytest.raises(DaskkernError) as caught, connect(address, tls=tls, timeout_s=5):
        pass
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_a_plain_client_is_told(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    plain = address.replace("tls://", "tcp://")
    assert re.match(rf"the Dask scheduler at {plain} closed .* TLS .* wants certificates", refused(plain, None))
    assert re.match(rf"the cluster at {address} is encrypted, and no certificates", refused(address, None))


def test_the_wrong_authority_is_told(address: str, files: Certificates, keys: Path) -> None:
    other = Certificates(str(keys / "other.pem"), files.cert, files.key)
    assert re.match(
        r"the certificate of the Dask scheduler .* was not signed by the authority", refused(address, other)
    )


def test_certificates_for_a_plain_cluster_are_told(cluster2: str, files: Certificates) -> None:
    assert re.match(r"certificates were given for tcp://.*, which is not encrypted", refused(cluster2, files))


def test_a_peer_without_a_certificate_of_the_authority_is_refused(address: str, keys: Path) -> None:
    stranger = trustme.CA()
    issued = stranger.issue_cert("localhost")
    (keys / "stranger.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(keys / "stranger_key.pem")
    files = Certificates(str(keys / "ca.pem"), str(keys / "stranger.pem"), str(keys / "stranger_key.pem"))
    with pytest.raises(ClusterError, match=r"this c(lient|ertificate)"), client_at(address, 5, files.security()):
        pass


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("none.pem", "cert.pem", "key.pem"), r"the TLS CA file \S+none.pem cannot be read: No such file"),
        (("ca.pem", "none.pem", "key.pem"), r"the TLS certificate \S+none.pem cannot be read"),
        (("ca.pem", "cert.pem", "none.pem"), r"the TLS key \S+none.pem cannot be read"),
        (("key.pem", "cert.pem", "key.pem"), r"the TLS CA file \S+ holds no certificate"),
        (("ca.pem", "cert.pem", "other_key.pem"), r"do not match .*the PEM files of one client"),
        (("ca.pem", "ca.pem", "ca.pem"), r"do not match"),
    ],
)
def test_files_that_are_none_are_named(keys: Path, names: tuple[str, str, str], sentence: str) -> None:
    ca, cert, key = (str(keys / name) for name in names)
    with pytest.raises(SpecError, match=sentence):
        Certificates(ca, cert, key).security()


_FILES = ["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"]


@pytest.mark.parametrize(
    ("command", "words", "sentence"),
    [
        ("fit", ["--scheduler", "tls://h:1", "--tls-ca", "a"], "got no certificate; give all three"),
        (
            "fit",
            ["--scheduler", "tls://h:1", "--scheduler-file", "f.json"],
            "give one of --scheduler, --scheduler-file",
        ),
        ("fit", ["--scheduler-file", "f.json"], "the scheduler file f.json cannot be read"),
        ("fit", ["--workers", "1", *_FILES], "without a running cluster"),
        ("fit", ["--workers", "0", *_FILES], "--workers 0, which uses no cluster"),
        ("ingest", ["--scheduler-file", "f.json"], "the scheduler file f.json cannot be read"),
        ("ingest", ["--scheduler", "tls://h:1", "--workers", "2"], "give one of --scheduler"),
        ("ingest", _FILES, "without a running cluster"),
    ],
)
def test_options_that_do_not_go_together(
    command: str, words: list[str], sentence: str, store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, store, "--out", str(tmp_path / "out"), *words])
    assert ended.value.code
    reported = capfd.readouterr().err.strip()
    assert sentence in " ".join(reported.split())
    assert "Traceback" not in reported


def test_tasks_of_a_worker_with_a_workers_certificate_only_can_be_clients(files: Certificates) -> None:
    """``dask worker --tls-ca-file --tls-cert --tls-key`` sets no client's certificate, which supervisors need."""
    security = Security(
        tls_ca_file=files.ca, tls_worker_cert=files.cert, tls_worker_key=files.key, require_encryption=True
    )
    assert security.get_connection_args("client")["ssl_context"] is None
    worker = SimpleNamespace(
        address="tls://127.0.0.1:1",
        nanny=None,
        security=security,
        handlers={},
        periodic_callbacks={},
        loop=Mock(),
        scheduler=AsyncMock(),
    )
    with ThreadPoolExecutor(1) as pool:  # a worker's thread, where no signals are handled
        pool.submit(asyncio.run, CollectivesPlugin().setup(worker)).result()
    assert security.get_connection_args("client")["ssl_context"] is not None

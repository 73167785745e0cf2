"""Ingestion of SVMLight / LIBSVM files, against scikit-learn's reader."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.ingest import IngestReport, ingest
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError

Left = Callable[[], list[str]]


def _svm(tmp_path: Path, text: str, **settings: object) -> IngestReport:
    (tmp_path / "d.svm").write_text(text)
    return ingest(tmp_path / "d.svm", tmp_path / "s", **settings)  # type: ignore[arg-type]


def _dense(path: Path) -> HostArray:
    store = open_store(path)
    store.verify()
    X = StoreRows(store, np.float64).read(0, store.info.n_rows).X
    assert isinstance(X, scipy.sparse.csr_array)
    return X.toarray()


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("block", [40, 1 << 20])
def test_the_rows_are_those_of_scikit_learn(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, zero_based: bool, block: int
) -> None:
    monkeypatch.setattr("daskkern.data.ingest.readers.svm_tables.BLOCK_BYTES", block)
    dense = np.where(rng.random((80, 30)) < 0.1, rng.normal(size=(80, 30)), 0)
    dense[3, 0] = 1.5
    X = scipy.sparse.csr_array(dense)
    y = rng.choice([-1, 1], 80)
    dump_svmlight_file(X, y, str(tmp_path / "d.libsvm"), zero_based=zero_based, comment="a remark")
    expected, labels = load_svmlight_file(str(tmp_path / "d.libsvm"))
    report = ingest(tmp_path / "d.libsvm", tmp_path / "s", shuffle=False)
    assert (report.task, report.classes, report.n_rows) == ("classification", (-1, 1), 80)
    assert f"counted from {int(not zero_based)}" in report.notes[0]
    np.testing.assert_array_equal(_dense(tmp_path / "s"), expected.toarray().astype(np.float32))
    np.testing.assert_array_equal(StoreRows(open_store(tmp_path / "s")).read(0, 80).y, labels > 0)


def test_remarks_queries_blank_lines_and_missing_ends(tmp_path: Path) -> None:
    text = "# head\n\n+1 qid:3 1:0.5 3:2 # tail 9:9\n   \n-1\r\n1 2:1e-3"
    _svm(tmp_path, text, shuffle=False)
    np.testing.assert_allclose(_dense(tmp_path / "s"), [[0.5, 0, 2], [0, 0, 0], [0, 1e-3, 0]], rtol=1e-6)


def test_compressed_files_are_joined_and_counted_alike(tmp_path: Path) -> None:
    (tmp_path / "1.svm.gz").write_bytes(gzip.compress(b"0.5 1:1 4:2\n"))
    (tmp_path / "2.svm.gz").write_bytes(gzip.compress(b"1.5 0:3\n"))
    report = ingest(str(tmp_path / "*.svm.gz"), tmp_path / "s", shuffle=False)
    assert (report.task, report.format) == ("regression", "svmlight")
    np.testing.assert_array_equal(_dense(tmp_path / "s"), [[0, 1, 0, 0, 2], [3, 0, 0, 0, 0]])


def test_the_first_number_can_be_said(tmp_path: Path) -> None:
    _svm(tmp_path, "1 1:1\n2 2:1\n", index_base=0, shuffle=False)
    np.testing.assert_array_equal(_dense(tmp_path / "s"), [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("1 1:2\n1,3 1:2\n", {}, r"row 1 of .* has the labels '1,3'; rows with several labels"),
        ("1 1:2\nx 1:2\n", {}, "row 1 .* has 'x' where a number as its label"),
        ("1 1:2\n2 3\n", {}, "row 1 .* has '3' where index:value"),
        ("1 1:2\n2 a:3\n", {}, "row 1 .* has 'a:3' where index:value"),
        ("1 1:2\n2 3:b\n", {}, "row 1 .* has '3:b' where index:value"),
        ("1 1:2\n2 -1:3\n", {}, "row 1 .* has '-1:3' where index:value"),
        ("1 1:2\n2 1.5:3\n", {}, "row 1 .* has '1.5:3' where index:value"),
        ("1 1:2\n2 2:3 2:4\n", {}, "row 1 .* names a feature twice"),
        ("1 1:2\n2 2:nan\n", {}, "row 1 .* has nan.* in feature column 1"),
        ("1 1:2\n2 2:1e99\n", {}, r"row 1 .* has 1e\+99, which float32 cannot hold"),
        ("1 0:2\n2 2:1\n", {"index_base": 1}, "a feature has the number 0"),
        ("1 0:2\n2 2:1\n", {"target": "t"}, "the label comes first in every line"),
        ("1 0:2\n2 2:1\n", {"scale": "standard"}, "choose maxabs"),
        ("", {}, "no rows"),
    ],
)
def test_refusals(tmp_path: Path, left: Left, text: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises((DataError, SpecError), match=words):
        _svm(tmp_path, text, **settings)
    assert left() == ["d.svm"]


_MEMORY = """
import sys
from daskkern.data.ingest import ingest
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
ingest(sys.argv[1], sys.argv[2])
print(peak() - before)
"""


@pytest.mark.repeated
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak memory from Linux's /proc")
def test_a_large_file_is_never_in_memory(tmp_path: Path, rng: np.random.Generator) -> None:
    lines = [
        f"{i % 2} "
        + " ".join(f"{j}:{v:.6f}" for j, v in zip(np.arange(1, 4000, 40), rng.normal(size=100), strict=True))
        for i in range(1000)
    ]
    text = "\n".join(lines) + "\n"
    with (tmp_path / "d.svm").open("w") as stream:
        stream.writelines(text for _ in range(100))
    assert (tmp_path / "d.svm").stat().st_size > 130_000_000
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _MEMORY, str(tmp_path / "d.svm"), str(tmp_path / "s")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=200)
    assert int(result.stdout) < 160_000_000
    assert open_store(tmp_path / "s").info.n_rows == 100_000


def test_later_files_are_counted_as_the_training_rows_were(tmp_path: Path, rng: np.random.Generator) -> None:
    """A file of few rows, in which the first feature never occurs, looks as if it were counted from 1."""
    X = rng.normal(size=(60, 3))
    y = (X[:, 1] > 0).astype(int)
    dump_svmlight_file(X, y, str(tmp_path / "train.svm"), zero_based=True)
    later = np.column_stack([np.zeros(20), X[:20, 1:]])
    dump_svmlight_file(later, y[:20], str(tmp_path / "later.svm"), zero_based=True)
    ingest(tmp_path / "train.svm", tmp_path / "first")
    shuffle_store(tmp_path / "first", tmp_path / "train")
    ingest(tmp_path / "later.svm", tmp_path / "rows", like=tmp_path / "train", shuffle=False)
    stored = StoreRows(open_store(tmp_path / "rows"), "float64").read(0, 20).X
    np.testing.assert_allclose(scipy.sparse.csr_matrix(stored).toarray(), later, rtol=1e-6)
    model = daskkern.KernelClassifier(device="cpu").fit(tmp_path / "train")
    daskkern.write_predictions(model.model_, str(tmp_path / "later.svm"), tmp_path / "p.csv")
    assert (np.genfromtxt(tmp_path / "p.csv", skip_header=1, delimiter=",")[:, 0] == model.predict(later)).all()
    with open(tmp_path / "later.svm", "w") as file:
        file.write("1 0:1 4:2\n")
    dump_svmlight_file(X, y, str(tmp_path / "one.svm"), zero_based=False)
    ingest(tmp_path / "one.svm", tmp_path / "one")
    with pytest.raises(DataError, match="got features counted from 1, as the training rows, but a feature has the num"):
        ingest(tmp_path / "later.svm", tmp_path / "no", like=tmp_path / "one")

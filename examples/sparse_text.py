"""Text as sparse rows: TF-IDF of documents, a store in the CSR layout, and a fit that keeps the rows sparse.

``--data`` names a folder with one folder of text files for each class, as `sklearn.datasets.load_files` reads. Without
it artificial documents are generated: words with Zipf's frequencies, some of which are more frequent in each topic.

Run it with ``python examples/sparse_text.py``; it takes a few seconds.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_files
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split

import daskkern
from daskkern import KernelClassifier, Landmarks

TOPICS = 4
WORDS = 20_000


def generated(n: int) -> tuple[list[str], list[str]]:
    """Return documents of 50 to 200 made-up words and the names of their topics."""
    rng = np.random.default_rng(0)
    zipf = 1 / np.arange(1, WORDS + 1)
    lift = np.where(rng.random((TOPICS, WORDS)) < 0.02, 4.0, 1.0)
    frequency = zipf * lift
    frequency /= frequency.sum(axis=1, keepdims=True)
    topics = rng.integers(TOPICS, size=n)
    numbers = [rng.choice(WORDS, size=rng.integers(50, 200), p=frequency[topic]) for topic in topics]
    return [" ".join(f"w{word}" for word in words) for words in numbers], [f"topic{topic}" for topic in topics]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with a folder for each class (default: generated documents)")
    parser.add_argument("--documents", type=int, default=4000, help="documents to generate (default: 4,000)")
    parser.add_argument("--landmarks", type=int, default=1000, help="columns of the model (default: 1,000)")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the documents (default: 5)")
    options = parser.parse_args(argv)

    if options.data is None:
        texts, labels = generated(options.documents)
    else:
        files = load_files(options.data, encoding="utf-8", decode_error="replace")
        texts, labels = files.data, [files.target_names[code] for code in files.target]
    texts, held, y, y_held = train_test_split(texts, labels, test_size=0.25, random_state=0, stratify=labels)
    words = TfidfVectorizer(min_df=2)
    X = words.fit_transform(texts).astype(np.float32)
    print(
        f"{'generated documents' if options.data is None else options.data}: {X.shape[0]:,} x {X.shape[1]:,}, ", end=""
    )
    print(f"{X.nnz / (X.shape[0] * X.shape[1]):.2%} of the entries are stored")

    classes, codes = np.unique(y, return_inverse=True)
    with tempfile.TemporaryDirectory() as temporary:
        rows, store = Path(temporary) / "train.svm", Path(temporary) / "train.zarr"
        dump_svmlight_file(X, codes, str(rows), zero_based=True)
        report = daskkern.ingest(rows, store, index_base=0, task="classification")
        print(f"store: {report.n_rows:,} rows, {report.n_features:,} features, {len(report.classes or ())} classes")
        model = KernelClassifier("gaussian:1", basis=Landmarks(options.landmarks), max_epochs=options.epochs)
        model.fit(str(store))
    named = classes[model.predict(words.transform(held).astype(np.float32)).astype(int)]
    print(f"landmarks: {type(model.landmarks_).__name__} of shape {model.landmarks_.shape}")
    print(f"accuracy on {len(held):,} other documents: {np.mean(named == np.array(y_held)):.2%}")


if __name__ == "__main__":
    main()

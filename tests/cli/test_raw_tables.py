"""A model carries the encoding of its table: other tables are predicted and scored as they are."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr

from daskkern.cli.main import main
from daskkern.errors import ModelError
from daskkern.models import load_model

COLOURS = ("blue", "green", "red")


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def table(n: int, seed: int) -> pd.DataFrame:
    """Numbers with gaps, a category with gaps, and a label that they decide; sorted by label."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=n), "colour": rng.choice(COLOURS, n), "age": rng.uniform(0, 90, n)})
    frame["label"] = np.where((frame["size"] > 0) == (frame["colour"] == "red"), "yes", "no")
    frame["price"] = frame["size"] + (frame["colour"] == "red")
    frame.loc[rng.uniform(size=n) < 0.1, "age"] = np.nan
    frame.loc[rng.uniform(size=n) < 0.1, "colour"] = None
    return frame.sort_values("label")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table(400, 0).to_csv("train.csv", index=False)
    test = table(150, 1)
    test.to_csv("test.csv", index=False)
    test.sample(frac=1.0, axis=1, random_state=0).to_parquet("test.parquet")  # other order of columns
    test.drop(columns=["label", "price"]).to_csv("unlabelled.csv", index=False)
    return tmp_path


def fitted(capfd: pytest.CaptureFixture[str], target: str, other: str, *encoding: str) -> None:
    code, _, err = run(
        capfd, "ingest", "train.csv", "--target", target, "--drop", other, "--out", "d", "--scale", "standard",
        *encoding,
    )  # fmt: skip
    assert code == 0, err
    code, _, err = run(
        capfd, "fit", "d", "--out", "m", "--kernel", "gaussian:1.5", "--landmarks", 100, "--epochs", 5, "--workers", 0
    )
    assert code == 0, err


def predictions(place: str) -> tuple[np.ndarray, np.ndarray]:
    group = zarr.open_group(place, mode="r")
    return group["prediction"][:], group["scores"][:]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("target", "other", "encoding"),
    [
        ("label", "price", ("--categorical", "onehot", "--missing", "mean")),
        ("price", "label", ("--categorical", "ordinal", "--missing", "constant")),
    ],
)
def test_tables_are_predicted_and_scored_as_their_stores_are(
    target: str, other: str, encoding: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fitted(capfd, target, other, *encoding)
    assert run(capfd, "ingest", "test.csv", "--out", "t", "--like", "d", "--no-shuffle")[0] == 0
    assert run(capfd, "predict", "m", "t", "--out", "p0")[0] == 0
    scored = json.loads(run(capfd, "score", "m", "t", "--json")[1])
    before = set(folder.iterdir())
    for number, name in enumerate(("test.csv", "test.parquet", "unlabelled.csv"), 1):
        code, out, err = run(capfd, "predict", "m", name, "--out", f"p{number}")
        assert code == 0, err
        assert "150 predictions are in" in out
        for ours, theirs in zip(predictions(f"p{number}"), predictions("p0"), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if name != "unlabelled.csv":
            assert json.loads(run(capfd, "score", "m", name, "--json")[1]) == scored
    assert {path.name for path in set(folder.iterdir()) - before} == {"p1", "p2", "p3"}
    assert scored.get("accuracy", scored.get("r2")) > 0.7
    code, _, err = run(capfd, "score", "m", "unlabelled.csv")
    assert code == 1
    assert "has no targets to score predictions against" in err


def test_what_the_training_table_did_not_have_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fitted(capfd, "label", "price", "--categorical", "onehot", "--missing", "mean")
    frame = table(20, 2)
    for change, words in (
        ({"colour": ["pink"] * 20}, "'pink' in column 'colour', a category that the training data do not have"),
        ({"label": ["maybe"] * 20}, "'maybe'"),
    ):
        frame.assign(**change).to_csv("odd.csv", index=False)
        code, _, err = run(capfd, "score", "m", "odd.csv")
        assert code == 1
        assert words in err
    assert run(capfd, "predict", "m", "odd.csv", "--out", "p")[0] == 0  # labels are not looked at
    frame.drop(columns="age").to_csv("odd.csv", index=False)
    code, _, err = run(capfd, "predict", "m", "odd.csv", "--out", "q")
    assert code == 1
    assert "no column 'age'" in err
    assert not (folder / "q").exists()
    (folder / "nothing.txt").write_text("")
    assert "is a file but not a store" in run(capfd, "score", "m", "nothing.txt")[2]


def test_arrays_in_files_are_predicted_too(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    np.savez("d.npz", X=X, y=X[:, 0] > 0)
    assert run(capfd, "ingest", "d.npz", "--out", "d", "--scale", "minmax")[0] == 0
    assert run(capfd, "fit", "d", "--out", "m", "--kernel", "gaussian:1", "--landmarks", 50, "--workers", 0)[0] == 0
    assert run(capfd, "predict", "m", "d.npz", "--out", "p1")[0] == 0
    assert run(capfd, "predict", "m", "d", "--out", "p2")[0] == 0
    np.testing.assert_array_equal(predictions("p1")[0], predictions("p2")[0])
    assert run(capfd, "score", "m", "d.npz", "--json")[1] == run(capfd, "score", "m", "d", "--json")[1]


def test_the_encoding_is_saved_and_checked(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fitted(capfd, "label", "price", "--categorical", "onehot", "--missing", "mean")
    model = load_model("m")
    assert model.encoding is not None
    assert [column.kind for column in model.encoding] == ["number", "onehot", "number"]
    assert model.encoding[1].categories == COLOURS
    assert model.target_names == ("label",)
    group = zarr.open_group("m", mode="r+")
    kept = list(group.attrs["encoding"])
    for damage in (kept[:2], "nonsense", [{"name": 3}]):
        group.attrs["encoding"] = damage
        with pytest.raises(ModelError, match="its encoding is not for 5 features"):
            load_model("m")
    without = {key: value for key, value in group.attrs.items() if key not in ("encoding", "target_names")}
    group.attrs.put(without)  # as older models are
    assert load_model("m").encoding is None

"""The command line does the main job, and answers wrong input with one line."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_diabetes, load_iris

from daskkern.cli.main import main
from daskkern.cli.options import cluster_options
from tests.support.cluster import mixed_cluster
from tests.support.processes import read_until, started


def run(capfd, *words):
    """Run the command line in this process; return exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return end.value.code, out, err


def _succeed(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table, its stores, a store of other rows and a model, made once; tests take copies."""
    folder = tmp_path_factory.mktemp("made")
    X, y = load_iris(return_X_y=True)
    names = ["setosa", "versicolor", "virginica"]
    order = np.random.default_rng(0).permutation(len(y))
    with open(folder / "iris.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["sepal length", "sepal width", "petal length", "petal width", "species"])
        out.writerows([*X[i], names[y[i]]] for i in order)
    np.savez(folder / "other.npz", X=np.random.default_rng(0).random((40, 3)), y=np.arange(40) % 3)
    _succeed(
        "ingest", folder / "iris.csv", "--target", "species", "--scale", "standard", "--split", 0.3,
        "--out", folder / "train.zarr", "--out-test", folder / "test.zarr",
    )  # fmt: skip
    _succeed("ingest", folder / "other.npz", "--out", folder / "other.zarr")
    _succeed(
        "fit", folder / "train.zarr", "--kernel", "gaussian:median", "--landmarks", 80, "--workers", 0,
        "--loss", "logistic", "--out", folder / "model.zarr",
    )  # fmt: skip
    return folder


@pytest.fixture
def iris(made, tmp_path):
    return Path(shutil.copy(made / "iris.csv", tmp_path))


@pytest.fixture
def stores(made, tmp_path):
    return tuple(shutil.copytree(made / name, tmp_path / name) for name in ("train.zarr", "test.zarr"))


@pytest.fixture
def model(made, tmp_path):
    return shutil.copytree(made / "model.zarr", tmp_path / "model.zarr")


def test_ingest_fit_score_and_predict(stores, model, capfd, tmp_path):
    code, out, _ = run(capfd, "score", model, stores[1], "--json")
    assert code == 0
    score = json.loads(out)
    assert score["n_rows"] == 45
    assert score["accuracy"] > 0.85
    assert score["error"] == pytest.approx(1 - score["accuracy"])
    assert "45 rows: accuracy" in run(capfd, "score", model, stores[1])[1]
    code, out, _ = run(capfd, "predict", model, stores[1], "--out", tmp_path / "p.zarr")
    assert code == 0
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    labels = np.array(group.attrs["classes"])[group["prediction"][:]]
    assert set(labels) <= {"setosa", "versicolor", "virginica"}
    np.testing.assert_allclose(group["probability"][:].sum(axis=1), 1, rtol=1e-5)


def test_a_test_store_without_scaling_is_scored_right(iris, stores, model, capfd, tmp_path):
    assert run(capfd, "ingest", iris, "--target", "species", "--out", tmp_path / "raw.zarr")[0] == 0
    score = json.loads(run(capfd, "score", model, tmp_path / "raw.zarr", "--json")[1])
    assert score["accuracy"] > 0.9


def test_regression_is_scored_in_target_units(capfd, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    out = tmp_path / "d.zarr"
    assert run(capfd, "ingest", tmp_path / "X.npy", tmp_path / "y.npy", "--out", out)[0] == 0
    code, said, _ = run(
        capfd, "fit", out, "--kernel", "gaussian:median", "--workers", 0, "--epochs", 20, "--out", tmp_path / "m.zarr"
    )
    assert code == 0
    assert "model is in" in said
    score = json.loads(run(capfd, "score", tmp_path / "m.zarr", out, "--json")[1])
    assert set(score) == {"n_rows", "rmse", "mae", "r2"}
    assert 20 < score["rmse"] < 80
    assert score["r2"] > 0.3


def test_plan_shows_the_memory_of_a_rank(stores, capfd):
    code, out, _ = run(capfd, "plan", stores[0], "--landmarks", 50, "--workers", 2, "--learn-features", "none")
    assert code == 0
    assert "total" in out
    assert "budget" in out
    assert "learned features" not in out
    learn = ("--learn-features", "diagonal", "--set", "learn_features.n_rows=all")
    code, out, _ = run(capfd, "plan", stores[0], "--landmarks", 50, "--workers", 2, *learn)
    assert code == 0
    assert "learned features" in out
    code, _, err = run(capfd, "plan", stores[0], "--memory", "1MB")
    assert code == 1
    assert "budget is 1 MB" in err


def test_falkon_is_a_word_of_the_command_line(stores, capfd, tmp_path):
    words = ("--solver", "falkon", "--loss", "logistic", "--landmarks", 40, "--alpha", "1e-4", "--epochs", 4)
    kernel = ("--kernel", "gaussian:1.5", "--set", "solver.newton_passes=3")
    code, out, err = run(capfd, "plan", stores[0], *words, *kernel)
    assert code == 0, err
    assert "triangular factors" in out
    code, _, err = run(capfd, "fit", stores[0], *words, *kernel, "--workers", 0, "--out", tmp_path / "m.zarr")
    assert code == 0, err
    assert "rows distributed to 1 rank, all columns on each" in err
    code, out, err = run(capfd, "score", tmp_path / "m.zarr", stores[1], "--json")
    assert json.loads(out)["accuracy"] > 0.85


def test_settings_come_from_a_file_and_from_set(stores, capfd, tmp_path):
    (tmp_path / "fit.yaml").write_text("kernel: gaussian:1.5\nlandmarks: 40\nsolver:\n  name: eigenpro\n  window: 2\n")
    code, _, err = run(
        capfd, "fit", stores[0], "--config", tmp_path / "fit.yaml", "--set", "epochs=2", "--set", "solver.averaging=0",
        "--workers", 0, "--out", tmp_path / "m.zarr",
    )  # fmt: skip
    assert code == 0, err
    settings = zarr.open_group(tmp_path / "m.zarr", mode="r").attrs["provenance"]["settings"]
    assert settings["kernel"] == {"name": "gaussian", "length_scale": 1.5}
    assert settings["max_epochs"] == 2
    assert settings["solver"]["window"] == 2
    assert settings["solver"]["averaging"] == 0


@pytest.mark.cluster
@pytest.mark.timeout(120)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.repeated)])
def test_the_demo_goes_the_whole_way_and_again(times, capfd, tmp_path):
    for _ in range(times):
        code, out, err = run(capfd, "demo", "--out", tmp_path / "demo")
        assert code == 0, err
        assert "error" in out
        assert "dashboard http" in out
        assert str(tmp_path / "demo" / "model.zarr") in out


def _nan(path):
    path.write_text("a,b,label\n1,2,x\n3,,y\n")
    return ["ingest", path, "--target", "label", "--missing", "refuse", "--out"]


def _text(path):
    path.write_text("a,b,label\n1,2,x\n3,red,y\n")
    return ["ingest", path, "--target", "label", "--categorical", "refuse", "--out"]


def _forgotten(path):
    path.write_text("a,b,label\n1,2,x\n3,4,y\n")
    return ["ingest", path, "--out"]


def _wrong_column(path):
    path.write_text("a,b,label\n1,2,x\n3,4,y\n")
    return ["ingest", path, "--target", "lable", "--out"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: ["ingest", path.with_name("absent.csv"), "--target", "y", "--out"], ["absent.csv"]),
        (_nan, ["row 1", "'b'|\"b\"|b"]),
        (_text, ["red", "b"]),
        (_forgotten, ["--target", "label"]),
        (_wrong_column, ["lable", "label"]),
    ],
)
def test_wrong_input_to_ingest_is_one_line_and_leaves_nothing(make, words, capfd, tmp_path):
    arguments = make(tmp_path / "table.csv")
    before = sorted(tmp_path.iterdir())
    code, _, err = run(capfd, *arguments, tmp_path / "out.zarr")
    assert code in (1, 2)
    _is_one_line(err)
    for word in words:
        assert any(choice in err for choice in word.split("|")), err
    assert sorted(tmp_path.iterdir()) == before


def _is_one_line(err):
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("daskkern: error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "{absent}", "--out", "{out}"], 1, "absent.zarr"),
        (["fit", "{train}"], 2, "--out"),
        (["fit", "{train}", "--out", "{out}", "--kernel", "gausian:5"], 2, "did you mean 'gaussian'"),
        (["fit", "{train}", "--out", "{out}", "--kernel", "gaussian:wide"], 2, "wide"),
        (["fit", "{train}", "--out", "{out}", "--landmarks", "many"], 2, "many"),
        (["fit", "{train}", "--out", "{out}", "--epochs", "0"], 2, "at least 1"),
        (["fit", "{train}", "--out", "{out}", "--set", "colour=red"], 2, "colour"),
        (["fit", "{train}", "--out", "{out}", "--set", "solver.colour=red"], 2, "colour"),
        (["fit", "{train}", "--out", "{out}", "--config", "{absent}"], 2, "cannot be read"),
        (["fit", "{train}", "--out", "{out}", "--workers", "1", "--scheduler", "tcp://127.0.0.1:1"], 2, "one of"),
        (["fit", "{train}", "--out", "{out}", "--loss", "squard"], 2, "did you mean 'squared'"),
        (["fit", "{train}", "--out", "{train}", "--workers", "0"], 1, "not overwritten"),
        (["fit", "{train}", "--out", "{out}", "--memory", "lots"], 2, "4GB"),
        (["score", "{absent}", "{test}"], 1, "no model at"),
        (["score", "{train}", "{test}"], 1, "daskkern-model|no daskkern"),
        (["score", "{model}", "{absent}"], 1, "absent.zarr"),
        (["predict", "{model}", "{other}", "--out", "{out}"], 1, "4 features"),
        (["score", "{model}", "{other}"], 1, "4 features"),
        (["fit", "{train}", "--out", "{out}", "--set", "kernel=["], 2, "cannot be read"),
        (["fit", "{train}", "--out", "{out}", "--set", "epochs=.inf"], 2, "whole number"),
        (["plan", "{train}", "--solver", "nystrom_sgd", "--landmarks", "all"], 2, "Landmarks"),
        (["plan", "{train}", "--solver", "falkon", "--loss", "hinge"], 2, "second derivative"),
        (["score", "{train}", "{test}"], 1, "daskkern fit"),
        (["paint"], 2, "paint"),
        (["fit", "--colour"], 2, "--colour"),
    ],
)
def test_wrong_use_is_one_line(words, code, said, made, stores, model, capfd, tmp_path):
    names = {
        "train": stores[0], "test": stores[1], "model": model, "out": tmp_path / "out.zarr",
        "absent": tmp_path / "absent.zarr", "other": made / "other.zarr",
    }  # fmt: skip
    found, _, err = run(capfd, *[word.format(**names) for word in words])
    assert found == code, err
    _is_one_line(err)
    assert any(choice in err for choice in said.split("|")), err
    assert not names["out"].exists()


def test_a_model_of_another_schema_is_refused(stores, model, capfd):
    zarr.open_group(model, mode="r+").update_attributes({"version": 99})
    code, _, err = run(capfd, "score", model, stores[1])
    assert code == 1
    _is_one_line(err)
    assert "99" in err


def test_a_dead_scheduler_is_one_line(stores, capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_options, "connect", partial(cluster_options.connect, timeout_s=1.0))
    code, _, err = run(capfd, "fit", stores[0], "--out", tmp_path / "o.zarr", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 1
    _is_one_line(err)


def test_debug_shows_the_traceback(capfd, tmp_path):
    code, _, err = run(capfd, "score", tmp_path / "absent.zarr", tmp_path / "absent.zarr", "--debug")
    assert code == 1
    assert "Traceback" in err


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.cluster
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.timeout(180)
def test_an_interrupt_leaves_a_model(workers, tmp_path, capfd):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.standard_normal((2000, 20)), y=rng.integers(0, 3, 2000))
    assert run(capfd, "ingest", tmp_path / "d.npz", "--out", tmp_path / "d.zarr")[0] == 0
    words = ["fit", "d.zarr", "--kernel", "gaussian:4", "--landmarks", "200", "--epochs", "100000", "--out", "m.zarr"]
    command = [sys.executable, "-m", "daskkern", *words, "--workers", workers]
    with started(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        seen = read_until(process, "epoch   3/")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, seen + err
    assert "stopping within a few steps, with the model so far; another Ctrl-C ends at once" in err
    assert "interrupted: the model so far is in" in out
    assert (tmp_path / "m.zarr").is_dir()
    assert run(capfd, "score", tmp_path / "m.zarr", tmp_path / "d.zarr")[0] == 0


def test_plan_tells_the_time_and_what_it_is_made_of(stores, capfd):
    code, out, err = run(capfd, "plan", stores[0], "--landmarks", 50, "--workers", 0)
    assert code == 0, err
    for words in ("estimated time", "set-up", "first epoch", "each later epoch", "total, 10 epochs"):
        assert words in out
    assert "Estimated from a calibration of this machine" in out
    assert "kernel blocks:" in out


def test_plan_tells_the_cost_in_worker_hours(stores, capfd):
    code, out, err = run(capfd, "plan", stores[0], "--landmarks", 50, "--workers", 2)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("cost: ")]
    assert re.fullmatch(r"cost: (about \S+|less than 0.001) worker-hours: 2 workers for \S+ (s|min|h)", line)
    code, out, err = run(capfd, "plan", stores[0], "--landmarks", 50, "--workers", 0, "--max-seconds", "1e-3")
    assert code == 0, err
    assert "cost: less than 0.001 worker-hours: 1 worker for 0.001 s, the limit of --max-seconds" in out


def test_plan_refuses_with_numbers_and_remedies(stores, capfd):
    code, _, err = run(capfd, "plan", stores[0], "--landmarks", 80, "--memory", "290MB", "--workers", 0)
    assert code == 1
    assert "would do: (1)" in err
    assert "a memory limit of" in err


@pytest.mark.parametrize("more", [(), ("--virtual-shards", 3)])
def test_plan_and_fit_refuse_alike(stores, capfd, tmp_path, more):
    words = (stores[0], "--landmarks", 80, "--workers", 0, "--epochs", 1, *more, "--memory")
    refusals = [run(capfd, "plan", *words, "1MB"), run(capfd, "fit", *words, "1MB", "--out", tmp_path / "m.zarr")]
    assert [code for code, _, _ in refusals] == [1, 1]
    assert len({err.splitlines()[-1] for _, _, err in refusals}) == 1


def test_where_blocks_are_kept_is_set_and_told(stores, capfd, tmp_path):
    for requested, said in (("disk", "cached on disk as requested"), ("never", "recomputed in every epoch")):
        code, _, err = run(
            capfd, "fit", stores[0], "--landmarks", 50, "--workers", 0, "--set", f"keep_blocks={requested}",
            "--set", f"scratch={tmp_path}", "--out", tmp_path / f"{requested}.zarr",
        )  # fmt: skip
        assert code == 0, err
        assert said in err
    code, _, err = run(capfd, "plan", stores[0], "--set", "keep_blocks=tape")
    assert code == 2
    assert "keep_blocks='tape'" in err


@pytest.mark.long
@pytest.mark.cluster
def test_plan_measures_on_the_workers_of_a_cluster(stores, capfd, cluster2):
    code, out, err = run(capfd, "plan", stores[0], "--landmarks", 50, "--scheduler", cluster2)
    assert code == 0, err
    assert "a calibration of 2 workers at once" in out
    assert "memory of one rank of 2" in out


@pytest.mark.long
@pytest.mark.cluster
def test_plan_leaves_out_a_worker_that_is_too_small(stores, capfd):
    with mixed_cluster([(1, 380_000_000), (1, 2_000_000_000)]) as client:
        code, out, err = run(capfd, "plan", stores[0], "--landmarks", 50, "--scheduler", client.scheduler.address)
    assert code == 0, err
    assert "memory of one rank of 1" in out
    assert "it may use 304 MB; the fit would go on without it" in out + err

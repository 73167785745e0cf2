"""The sections of a run of kernel products as flat tables."""

from collections.abc import Iterator
from typing import Any

_CASE = ("kernel", "n_rows", "n_points", "n_features", "n_outputs", "stored_percent")
_SHARED = ("kernel", "n_points", "n_features", "n_outputs", "n_block_rows")


def as_tables(run: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return tables: a row for each method of each configuration, and a row for each target."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, figures in run["sections"].items():
        if isinstance(figures, dict) and "failed" in figures:
            tables[name] = [dict(figures)]
        elif name == "dense":
            tables["dense"] = [row for record in figures for row in _methods(record, "methods", "method")]
            tables["matmul"] = [
                _case(record) | record["matmul"] | {"others_load_cores": record["others_load_cores"]}
                for record in figures
            ]
        elif name == "sparse":
            tables["sparse"] = [row for record in figures for row in _methods(record, "paths", "path")]
        else:
            shared = {key: figures[key] for key in _SHARED if key in figures}
            tables["scaling"] = [shared | size for size in figures["sizes"]]
            tables["scaling_spread"] = [{key: value for key, value in figures.items() if key != "sizes"}]
    tables["targets"] = run["targets"]
    tables["whole"] = [{name: run[name] for name in ("sgemm_gflops_before_after", "wall_seconds")}]
    return tables


def _case(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in _CASE if key in record}


def _methods(record: dict[str, Any], key: str, called: str) -> Iterator[dict[str, Any]]:
    for name, figures in record[key].items():
        yield _case(record) | {called: name} | figures

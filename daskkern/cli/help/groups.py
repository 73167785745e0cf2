"""Headings under which the help of a command lists its options, and examples of its use."""

_CLUSTER = ("scheduler", "scheduler_file", "tls_ca", "tls_cert", "tls_key", "workers", "gpus")
_COLUMNS = ("basis", "landmarks", "features", "feature_kind", "selector", "nearest", "leaf_rows", "trees")
_STEPS = ("epochs", "max_seconds", "batch_size", "sampling", "class_weight")
_DIRECT = (
    "target",
    "weight",
    "drop",
    "task",
    "categorical",
    "missing",
    "only_columns",
    "row_filter",
    "sample_dims",
    "coords",
)
_PLACES = ("dtype", "precision", "device", "memory", "virtual_shards", "reading", "groups")

_FIT = {
    "Output": ("out", "overwrite", "checkpoint", "resume", "as_json"),
    "Rows that are not in a store": _DIRECT,
    "Model": ("auto", "system", "kernel", "scale", "learn_features", *_COLUMNS, "loss", "multilabel", "alpha"),
    "Training": ("solver", *_STEPS, "validation", "early_stopping", "monitor", "calibrate", "seed"),
    "Precision and memory": _PLACES,
    "Several settings at once": ("config", "assignments"),
    "Where it runs": _CLUSTER,
    "Shared clusters": ("detach", "name", "ranks", "share", "priority", "user"),
    "Logs": ("log_json", "log_file", "report"),
}
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "fit": _FIT,
    "plan": _FIT,
    "ingest": {
        "Output": ("out", "overwrite", "chunk_rows", "as_json"),
        "Columns": ("target", "task", "columns", "drop", "weight", "where", "categorical", "missing", "scale", "like"),
        "Held-out rows and order": (
            *("split", "out_test", "split_validation", "out_validation", "stratify", "shuffle", "seed"),
        ),
        "Formats": ("features", "index_base"),
        "Where it runs": _CLUSTER,
    },
}
"""Parameters by heading, for the commands with many; what no heading names follows under "Other options"."""

OTHERS: dict[str, tuple[str, ...]] = {"Where it runs": _CLUSTER}
"""Headings of all other commands, whose remaining options come first, under "Options"."""

PLACEHOLDERS: dict[tuple[str, str], str] = {
    ("ingest", "task"): "auto|classification|regression",
    ("ingest", "categorical"): "auto|refuse|onehot|codes|ordinal",
    ("ingest", "missing"): "auto|refuse|mean|most_frequent|constant",
    ("ingest", "scale"): "standard|common|minmax|maxabs|unit_variance|none",
}
"""What the help shows for the value of an option, by command and parameter, where the command declares nothing."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "cancel": ("daskkern cancel 7f3a --scheduler tcp://host:8786",),
    "check": ("daskkern check train.zarr", "daskkern check train.zarr --json"),
    "compare": ("daskkern compare train.zarr --test test.zarr --systems falkon,eigenpro4 --budget 20 --out compared",),
    "demo": ("daskkern demo",),
    "doctor": ("daskkern doctor", "daskkern doctor --scheduler tcp://host:8786"),
    "explain": ("daskkern explain model.zarr test.zarr --top 10",),
    "export": (
        "daskkern export model.zarr --out model.onnx",
        "daskkern export model.zarr --out model.onnx --inputs features",
    ),
    "fit": (
        "daskkern fit train.zarr --out model.zarr",
        "daskkern fit train.zarr --out model.zarr --kernel laplacian:median --landmarks 10000 --workers 4",
        "daskkern fit train.zarr --out model.zarr --loss logistic --validation valid.zarr --early-stopping",
        "daskkern fit train.zarr --out model.zarr --config fit.yaml --set solver.window=4",
        "daskkern fit lake/ --target price --out model.zarr",
        "daskkern fit train.zarr --out model.zarr --scheduler tcp://host:8786 --detach",
    ),
    "info": ("daskkern info train.zarr", "daskkern info train.zarr --json"),
    "ingest": (
        "daskkern ingest table.csv --target price --out train.zarr --split 0.2 --out-test test.zarr",
        "daskkern ingest 'part-*.parquet' --target label --out train.zarr --workers 4",
    ),
    "logs": ("daskkern logs 7f3a --scheduler tcp://host:8786 --follow",),
    "plan": (
        "daskkern plan train.zarr --landmarks 20000",
        "daskkern plan train.zarr --landmarks 20000 --memory 4GB --workers 4",
    ),
    "predict": (
        "daskkern predict model.zarr test.zarr --out predictions.zarr",
        "daskkern predict model.zarr table.csv --out predictions.parquet --keep id",
    ),
    "report": (
        "daskkern report model.zarr --test test.zarr --out report.html",
        "daskkern report model.zarr --card --test test.zarr --out model-card.md",
    ),
    "resume": ("daskkern resume model.zarr.checkpoint", "daskkern resume --all folder"),
    "score": ("daskkern score model.zarr test.zarr --details", "daskkern score model.zarr table.csv --json"),
    "shuffle": ("daskkern shuffle train.zarr --out shuffled.zarr",),
    "status": (
        "daskkern status --scheduler tcp://host:8786",
        "daskkern status 7f3a --scheduler tcp://host:8786 --json",
    ),
    "sweep": ("daskkern sweep train.zarr --test test.zarr --landmarks 500 --workers 0",),
    "systems": ("daskkern systems",),
    "watch": ("daskkern watch 7f3a --scheduler tcp://host:8786",),
}
"""Lines that the help of each command ends with."""

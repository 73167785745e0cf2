"""The arithmetic of the page on 100 GB: measured rates, and what they mean for the example."""

LAKE_BYTES = 100e9
WORKERS, CORES = 8, 32
PARQUET_ROW, STORED_FEATURES, PREDICTED_ROW = 1183, 306, 15.6  # bytes, numbers, bytes
INGESTED = 2450.0  # rows a second of a worker with one thread
CHECKED = 17e6  # bytes a second of one
TRAINED_FAST, TRAINED_SLOW = 0.8e-3, 17e-3  # core-seconds a row and epoch, 20,000 landmarks
ENTRY = 60e-9  # core-seconds of a kernel entry
LANDMARKS, EPOCHS = 20_000, 2
CORE_HOUR, GB_MONTH = 0.05, 0.023


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def rows_of_page() -> list[str]:
    """Return the rows of the table of stages: what is read and written, the time, and core-hours."""
    rows = LAKE_BYTES / PARQUET_ROW
    train, store = 0.9 * rows, 0.9 * rows * 4 * (STORED_FEATURES + 1)
    entries = ENTRY * LANDMARKS / CORES
    spans = [
        ("ingest", "the lake, 90 GB", f"{store / 1e9:.0f} GB", train / INGESTED / CORES, train / INGESTED / WORKERS),
        ("check", f"{store / 1e9:.0f} GB", "-", store / CHECKED / CORES, store / CHECKED / WORKERS),
        (
            "fit",
            f"{EPOCHS} x {store / 1e9:.0f} GB",
            "the model, 25 MB",
            EPOCHS * train * TRAINED_FAST / CORES,
            EPOCHS * train * TRAINED_SLOW / CORES,
        ),
        ("score", "10 GB", "-", 0.1 * rows * entries, 0.1 * rows * entries),
        ("predict", "100 GB", f"{rows * PREDICTED_ROW / 1e9:.1f} GB", rows * entries, rows * entries),
    ]
    found, low, high = [], 0.0, 0.0
    for name, read, written, least, most in spans:
        low, high = low + least, high + most
        found.append(f"| {name} | {read} | {written} | {_span(_time(least), _time(most))} | {_hours(least, most)} |")
    money = f"{_hours(low, high, CORE_HOUR)} $"
    return [*found, f"| together | | | {_span(_time(low), _time(high))} | {_hours(low, high)}, {money} |"]


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _hours(least: float, most: float, price: float = 1.0) -> str:
    """Return core-hours of the whole cluster, or what they cost."""
    return _span(*(f"{seconds * CORES / 3600 * price:,.0f}" for seconds in (least, most)))

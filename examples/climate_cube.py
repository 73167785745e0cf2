"""Fit the near-surface temperature of a climate cube that is larger than a memory limit, and map the predictions.

The cube is synthetic: six-hourly fields of a made-up planet with continents, seasons, days and weather, packed as CF
says (16-bit integers with ``scale_factor``, ``add_offset`` and ``_FillValue``), in a Zarr store that xarray writes
chunk by chunk. The sea has no temperature: its cells are missing. The last tenth of the time steps is predicted and
compared, lazily, and written to a Zarr store again.

The default is a cube of 1.1 GB of decoded numbers and a limit of 1 GB for this process, whose peak is printed.

Run it with ``python examples/climate_cube.py``; it needs ``daskkern[xarray]``, and ``--maps`` needs ``daskkern[plot]``.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.utils import format_bytes, parse_bytes

from daskkern import KernelRegressor, Landmarks

DIMS = ("time", "lat", "lon")
COORDS = ("lat", "lon", "time")
PER_CHUNK = 4
PACKED = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 0.0, "_FillValue": -32768}


def planet(n_lat: int, n_lon: int) -> xr.Dataset:
    """Return the height of the land in metres, 0 at sea."""
    lat, lon = np.linspace(-88, 88, n_lat), np.arange(n_lon) * 360 / n_lon
    north, east = np.deg2rad(lat)[:, None], np.deg2rad(lon)[None, :]
    shape = (
        np.sin(2 * east + 1) * np.cos(north) + 0.6 * np.sin(3 * north + np.cos(east)) + 0.3 * np.cos(5 * east - north)
    )
    height = np.clip(shape, 0, None) * 2500
    ds = xr.Dataset({"height": (("lat", "lon"), height.astype("f4"), {"units": "m"})})
    return ds.assign_coords(lat=("lat", lat, {"units": "degrees_north"}), lon=("lon", lon, {"units": "degrees_east"}))


def fields(land: xr.Dataset, first: int, steps: int, n_levels: int) -> xr.Dataset:
    """Return the fields of some time steps: the air above on levels, and the temperature at the surface of the land."""
    time_ = np.datetime64("2020-01-01", "ns") + (first + np.arange(steps)) * np.timedelta64(6, "h")
    ds = land.assign_coords(time=time_, level=np.linspace(200, 900, n_levels).round())
    days = xr.DataArray((first + np.arange(steps)) / 4, dims="time", coords={"time": time_})
    north, east, turn = np.deg2rad(ds.lat), np.deg2rad(ds.lon), 2 * np.pi * days / 365.2425
    weather = 6 * np.sin(4 * east - 0.7 * days + 2 * north) * np.cos(north)
    depth = ds.level / 900
    season = np.sin(north) * np.cos(turn)
    air = -50 + 45 * depth * np.cos(north) ** 2 + weather * np.sin(3 * depth + 0.2 * days) - 10 * season
    surface = 28 * np.cos(north) ** 2 - 12 - 14 * season + weather * np.sin(3 + 0.2 * days)
    surface = surface - 0.0065 * ds.height + 4 * np.cos(2 * np.pi * days + east) * np.cos(north)
    rng = np.random.default_rng(first)
    noise = xr.DataArray(rng.normal(0, 0.5, (steps, ds.sizes["lat"], ds.sizes["lon"])), dims=DIMS)
    ds["air"] = air.transpose("time", "level", "lat", "lon").astype("f4").assign_attrs(units="degC")
    ds["t2m"] = (surface + noise).where(ds.height > 0).transpose(*DIMS).astype("f4").assign_attrs(units="degC")
    return ds


def write_cube(place: Path, steps: int, n_lat: int, n_lon: int, n_levels: int) -> None:
    """Write the cube, a few time steps at a time."""
    land = planet(n_lat, n_lon)
    sizes = {"time": steps, "level": n_levels, "lat": n_lat, "lon": n_lon}
    times = np.datetime64("2020-01-01", "ns") + np.arange(steps) * np.timedelta64(6, "h")
    whole = land.assign_coords(time=times, level=fields(land, 0, 1, n_levels).level)
    for name, dims in (("air", ("time", "level", "lat", "lon")), ("t2m", DIMS)):
        chunks = tuple(PER_CHUNK if dim == "time" else sizes[dim] for dim in dims)
        empty = da.zeros(tuple(sizes[dim] for dim in dims), chunks=chunks, dtype="f4")
        whole[name] = xr.DataArray(empty, dims=dims, attrs={"units": "degC"})
    options: dict[str, Any] = {"zarr_format": 3, "consolidated": False}
    whole.to_zarr(place, compute=False, encoding={"air": PACKED, "t2m": PACKED}, **options)
    for first in range(0, steps, PER_CHUNK):
        count = min(PER_CHUNK, steps - first)
        part = fields(land, first, count, n_levels)[["air", "t2m"]].drop_vars(["lat", "lon", "level"])
        part.to_zarr(place, region={"time": slice(first, first + count)}, **options)


def peak() -> int:
    """Return the most memory that this process had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def draw(folder: Path, truth: xr.DataArray, predicted: xr.DataArray) -> Iterator[Path]:
    """Write maps of a time step: true, predicted, and their difference."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    limits = float(truth.min()), float(truth.max())
    pictures = {"truth": (truth, "RdYlBu_r", limits), "predicted": (predicted, "RdYlBu_r", limits)}
    pictures["error"] = (predicted - truth, "PuOr", (-3.0, 3.0))
    for name, (field, cmap, shown) in pictures.items():
        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        mesh = axes.pcolormesh(field.lon, field.lat, field, cmap=cmap, vmin=shown[0], vmax=shown[1], rasterized=True)
        figure.colorbar(mesh, label="°C", shrink=0.9)
        axes.set(xlabel="longitude", ylabel="latitude", title=f"{name}, {str(truth.time.values)[:13]} h")
        path = folder / f"climate-{name}.png"
        figure.savefig(path, dpi=80, metadata={"Software": None})
        plt.close(figure)
        yield path


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the cube, fit, predict and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="time steps of six hours")
    parser.add_argument("--grid", type=int, nargs=2, default=(91, 180), metavar=("LAT", "LON"))
    parser.add_argument("--levels", type=int, default=20)
    parser.add_argument("--landmarks", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit", default="1GB", help="the memory that this process may use")
    parser.add_argument("--out", help="a folder for the cube and the predictions, which are kept there")
    parser.add_argument("--maps", help="a folder for maps of the last time step")
    given = parser.parse_args(arguments)
    limit = parse_bytes(given.limit)
    with tempfile.TemporaryDirectory(prefix="climate-") as scratch:
        folder = Path(given.out or scratch)
        place = folder / "cube.zarr"
        write_cube(place, given.steps, *given.grid, given.levels)
        cube = xr.open_zarr(place, consolidated=False)
        print(f"the cube has {format_bytes(cube.nbytes)} of numbers; the limit is {format_bytes(limit)}")

        split = given.steps * 9 // 10
        past, future = cube.isel(time=slice(None, split)), cube.isel(time=slice(split, None))
        model = KernelRegressor(
            "gaussian:median",
            basis=Landmarks(given.landmarks),
            alpha=1e-6,
            max_epochs=given.epochs,
            memory_budget=limit,
            calibrate=False,
        )
        begun = time.perf_counter()
        model.fit(past, target="t2m", sample_dims=DIMS, coords=COORDS)
        took = time.perf_counter() - begun
        print(f"fitted {model.n_features_in_} features of {past.t2m.size:,} cells in {took:.0f} s")

        predicted = model.predict(future)  # lazy: nothing was read yet
        with dask.config.set(scheduler="threads", num_workers=2):
            predicted.where(future.t2m.notnull()).to_zarr(folder / "predicted.zarr", zarr_format=3, consolidated=False)
        done = xr.open_zarr(folder / "predicted.zarr", consolidated=False).t2m
        weight = np.cos(np.deg2rad(future.lat))
        error = float(np.sqrt(((done - future.t2m) ** 2).weighted(weight).mean()).compute(num_workers=2))
        spread = float(future.t2m.weighted(weight).std().compute(num_workers=2))
        print(f"RMSE {error:.2f} degC on later time steps, where the spread is {spread:.2f} degC")
        print(f"peak memory {format_bytes(peak())} of {format_bytes(limit)}")
        if given.maps:
            for path in draw(Path(given.maps), future.t2m.isel(time=-1).load(), done.isel(time=-1).load()):
                print(f"map: {path}")


if __name__ == "__main__":
    main()

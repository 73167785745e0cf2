"""A small cube of weather, with gaps, that several tests read."""

import numpy as np
import pytest
import xarray as xr


@pytest.fixture
def weather() -> xr.Dataset:
    """Temperatures by time, lat and lon; a variable on two levels, one without time, and missing cells of two kinds."""
    rng = np.random.default_rng(0)
    shape = (12, 6, 8)
    time = np.datetime64("2020-01-01T00:00:00", "ns") + np.arange(12) * np.timedelta64(740, "h")
    t2m, z = rng.normal(10, 5, shape), rng.normal(size=shape).astype("f4")
    t2m[:, 0, :3], z[3, 4, 5] = np.nan, np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m, {"units": "degC"}),
            "z": (("time", "lat", "lon"), z),
            "wind": (("time", "level", "lat", "lon"), rng.normal(size=(12, 2, 6, 8))),
            "oro": (("lat", "lon"), rng.uniform(0, 1000, (6, 8))),
        },
        coords={"time": time, "lat": np.linspace(-75, 75, 6), "lon": np.arange(8) * 45.0, "level": [500, 850]},
    )

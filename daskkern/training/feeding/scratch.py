"""The folder for scratch files."""

import tempfile

from distributed import get_worker

from daskkern.training.run.settings import FitSettings


def scratch_folder(settings: FitSettings) -> str:
    """Return the folder for scratch files: the user's, the Dask worker's, or the system's for temporary files."""
    if settings.scratch is not None:
        return settings.scratch
    try:
        return str(get_worker().local_directory)
    except ValueError:
        return tempfile.gettempdir()

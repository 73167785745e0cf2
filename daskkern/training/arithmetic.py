"""In which arithmetic the kernel values of a fit will be made, before it runs."""

from daskkern.basis import AllRows, Landmarks, NystromFeatures
from daskkern.kernels import arithmetic_note
from daskkern.training.prepare_parts import some_rows
from daskkern.training.scaling import scales_features
from daskkern.training.settings import FitSettings
from daskkern.training.sources import Source


def expected_arithmetic(source: Source, settings: FitSettings) -> tuple[bool, str]:
    """Return whether products of float32 rows will be made in float64 within, and a line that says why, from a sample.

    (False, "") where rows are scaled by the fit itself, which the sample is not, and where the columns are no kernel's.
    """
    if scales_features(settings, source) or not isinstance(settings.basis, AllRows | Landmarks | NystromFeatures):
        return False, ""
    sample = some_rows(source.open(settings.dtype), settings)
    kernel = settings.kernel.resolve(sample)
    wide = kernel.placement_for(sample).widens(settings.dtype, settings.rounding)
    return wide, arithmetic_note(kernel, sample, settings.rounding)

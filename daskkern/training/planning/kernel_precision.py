"""The precision of a fit's kernel values, known before it runs."""

from daskkern.kernels import arithmetic_note, length_scale_note
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.scaling import scales_features
from daskkern.training.setup.shared import some_rows


def expected_arithmetic(source: RowSource, settings: FitSettings) -> tuple[bool, tuple[str, ...]]:
    """Return whether products of float32 rows will be made in float64 within, and lines that say why, from a sample.

    They say, too, where the length scale does not go with the rows. Nothing is said where the fit scales rows itself,
    which the sample is not, and where the columns are no kernel's.
    """
    if scales_features(settings, source) or not settings.basis.has_centres:
        return False, ()
    sample = some_rows(source.open(settings.dtype), settings)
    kernel = settings.kernel.resolve(sample)
    wide = kernel.placement_for(sample).becomes_float64(settings.dtype, settings.rounding)
    arithmetic, scale = arithmetic_note(kernel, sample, settings.rounding), length_scale_note(kernel, sample)
    said = (scale and f"length scale: {scale}", arithmetic and f"kernel arithmetic: {arithmetic}")
    return wide, tuple(line for line in said if line)

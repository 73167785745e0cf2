"""Protection of a fit's model from being replaced by a superseded or suspended driver."""

import json
import zlib
from dataclasses import dataclass, field

from daskkern.data.remote.stores import open_zarr
from daskkern.errors import SupersededError
from daskkern.training.checkpoints.claims import Claim


@dataclass(frozen=True)
class ModelGuard:
    """What was at the place of a model when its fit began: a checksum of the attributes, or None for nothing."""

    out: str = field(repr=False)
    before: int | None

    @classmethod
    def of(cls, out: str) -> "ModelGuard":
        """Return the guard of the model that a fit which begins now will write to `out`."""
        return cls(out, _checksum(out))

    def check(self, claim: Claim | None) -> None:
        """Raise SupersededError when a later driver owns the checkpoint, or its model has come to the place.

        Parameters
        ----------
        claim : Claim or None
            That of the fit; without one, or when the checkpoint has been removed, only the place of the model counts.
        """
        if claim is not None and claim.check():
            return
        found = _checksum(self.out)
        if found is not None and found != self.before:
            raise SupersededError(
                f"another run has written {self.out} since this fit began; its model is kept, and that of this fit "
                "is not written; fit again to another place to have both"
            )


def _checksum(place: str) -> int | None:
    try:
        attributes = open_zarr(place).attrs.asdict()
    except Exception:  # Zarr and its stores raise many types where there is no group
        return None
    return zlib.crc32(json.dumps(attributes, sort_keys=True, default=str).encode())

"""One part of the GPU benchmark in this process: each record is a line of a file.

Its modules are imported here, part by part: a package that is missing costs the parts that need it.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from daskkern.backend.namespace import namespace_for
from on_gpu.parts import PARTS
from on_gpu.sizes import FULL, TINY, Sizes

Records = Iterable[tuple[str, Mapping[str, Any]]]
Part = Callable[[ModuleType, Sizes, str, Mapping[str, float]], Records]

MODULES = {
    "device": "machine",
    "ceilings": "ceilings",
    "correctness": "correctness",
    "sanitizer": "sanitizer",
    "products": "products",
    "eigenpro_10k": "steps",
    "eigenpro_262k": "steps",
    "falkon": "steps",
    "nystrom_sgd": "steps",
    "susy": "fits",
    "cifar5m": "fits",
    "fashion_mnist": "fits",
    "kept_blocks": "fits",
    "streaming": "streaming",
}
"""Where the function of each part is, which has the part's name."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[part.name for part in PARTS])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--ceilings", type=json.loads, default={})
    parser.add_argument("--records", type=Path, required=True)
    options = parser.parse_args(argv)
    xp = namespace_for(options.device)
    part: Part = getattr(import_module(f"on_gpu.{MODULES[options.part]}"), options.part)
    with options.records.open("a") as lines:
        for table, record in part(xp, TINY if options.tiny else FULL, options.device, options.ceilings):
            lines.write(json.dumps([table, record]) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()

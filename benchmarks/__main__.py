"""`python -m benchmarks NAME`: run a benchmark; see run.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # as for a script of this folder

from run import main

main()

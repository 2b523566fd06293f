"""Puts the shared cases of this folder, and those of kernels, within reach of its tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "kernels")]

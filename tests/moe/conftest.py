"""Puts the shared cases of this folder within reach of its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The command inspect: a checkpoint's layers, their formats, and why some are floats."""

from tuner.inspecting.layers import Inspection, inspect, to_json
from tuner.inspecting.printing import print_inspection

__all__ = ["Inspection", "inspect", "print_inspection", "to_json"]

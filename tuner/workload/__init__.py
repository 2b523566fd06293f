"""Workload: a model's config.json becomes the layers and problems that a serving engine runs. No
search, no timing.
"""

from tuner.workload.layers import Layer, LayerGroup, Workload, to_json
from tuner.workload.plan import read_workload

__all__ = ["Layer", "LayerGroup", "Workload", "read_workload", "to_json"]

"""Checkpoints of public quantization tools, read exactly."""

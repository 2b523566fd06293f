"""The shared vocabulary: frozen dataclasses of plain Python; no torch, no GPU, no files."""

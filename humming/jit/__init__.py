"""Find devices, render, compile, cache and load kernels. What to run is decided elsewhere."""

"""CUDA kernels: rendering, loading and launching. Compiling is jit/nvrtc.py; the doors for kernels
of all kinds are jit/source.py, jit/cache.py and jit/load.py."""

"""A checkpoint's JSON: config.json and its side files, the quantization in them, and the dialects
of its lists of modules. No tensors here.
"""

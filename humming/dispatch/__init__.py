"""Which config serves a problem:

heuristics, tuned tables, dispatcher. Compiling, loading and launching are jit/.
"""

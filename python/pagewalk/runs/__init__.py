"""Many runs: their definitions, the cache of their results, and the simulation of missing ones.

`pagewalk reproduce` and `pagewalk sweep` are both built on it.
"""

"""Many runs: what each is, where finished ones are kept, and who simulates those that are missing.

`pagewalk reproduce` and `pagewalk sweep` both stand on it.
"""

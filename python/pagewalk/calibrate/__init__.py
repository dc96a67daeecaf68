"""Calibration: micro-benchmarks of this host, and the machine file that they determine."""

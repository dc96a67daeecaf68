"""Studies: many runs that differ along axes, planned, simulated and kept as one table."""

"""Studies: many runs that differ along axes, planned, simulated and stored as one table."""

"""The host: its files, its performance counters and its installed tools."""

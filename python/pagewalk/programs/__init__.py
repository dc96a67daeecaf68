"""Programs from Python and regions of traces."""

"""Revelator (MICRO 2025): a file a figure."""

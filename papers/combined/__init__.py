"""Guessing addresses over every page table and placement: a file a figure."""

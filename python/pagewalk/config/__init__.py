"""Configurations and run options: how they are read, named and checked."""

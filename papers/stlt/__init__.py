"""STLT, address-centric acceleration of key-value stores: a file a figure."""

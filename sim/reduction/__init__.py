"""Bench parts of the adders."""

"""Bench parts of the in-line card."""

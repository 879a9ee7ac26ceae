"""Bench parts of the scheduler."""

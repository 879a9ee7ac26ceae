"""Bench parts of the codec engines."""

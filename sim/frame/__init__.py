"""Frames and captures for benches."""

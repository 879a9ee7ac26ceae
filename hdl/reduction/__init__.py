"""Adders of partial sums: FP32, integer, and the image of a codec."""

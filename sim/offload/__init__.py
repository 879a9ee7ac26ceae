"""Clusters of offload cards, fuzz, upsets, goodput."""

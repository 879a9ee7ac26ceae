"""Clusters of cards on direct links."""

"""Bounded-loss transport: sender, receiver, importance, spraying, pacing, queues (DLCP)."""

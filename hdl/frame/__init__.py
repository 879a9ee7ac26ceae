"""Ethernet frames: head, checksums, gates, queues of whole frames, arbiters."""

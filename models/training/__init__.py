"""Seconds of a training step on a cluster: layers, devices, buckets, networks, codecs."""

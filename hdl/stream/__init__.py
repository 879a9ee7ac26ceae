"""Streams: beats, slices, queues and width converters, of any payload."""

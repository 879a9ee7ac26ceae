"""Boards: self-test bitstreams."""

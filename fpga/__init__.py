"""Boards and flows: synthesis, place and route, recorded baseline, bitstreams."""

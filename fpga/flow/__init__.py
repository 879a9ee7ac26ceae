"""Synthesis, place and route with open tools, and the recorded figures."""

"""Training with the golden codecs in the loop."""

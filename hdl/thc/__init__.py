"""The THC worker: norm, encoder, decoder."""

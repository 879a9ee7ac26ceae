"""The in-line card: codes marked traffic and passes all else (INCEPTIONN)."""

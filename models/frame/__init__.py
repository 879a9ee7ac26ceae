"""IPv4 and UDP headers of golden frames."""

"""What circuit, model and host agree on: wire formats, register maps, tables, parameters."""

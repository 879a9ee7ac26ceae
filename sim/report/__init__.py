"""The report page of `make`."""

"""What every run of the suite says first: the seed that all noise comes from."""

from gradnic.sim.engine import stimulus


def pytest_report_header(config):
    return f"GRADNIC_SEED={stimulus.master_seed()}"

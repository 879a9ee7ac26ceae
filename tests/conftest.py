"""What every run of the suite says first: the seed that all noise comes from."""

import gc

from gradnic.sim.engine import stimulus

from gradnic import cli

gc.set_threshold(*cli.COLLECT)  # as each command does


def pytest_report_header(config):
    return f"GRADNIC_SEED={stimulus.master_seed()}"

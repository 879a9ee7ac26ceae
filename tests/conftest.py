"""Order of the suite, and what every run of it says first: the seed that all noise comes from."""

import signal
import sys
from pathlib import Path

import pytest
from gradnic.sim.engine import stimulus

from gradnic import processes

ROOT = Path(__file__).parent

#: Files that take longest, the longest first: each goes to one worker as a whole (`--dist
#: loadfile`), and none should be left when the others are done.
LONG = (
    "commands/test_report.py",
    "proof/test_port_proofs.py",
    "offload/test_thc_cluster.py",
    "offload/test_job_cluster.py",
    "offload/test_card_cluster.py",
    "mutation/test_campaigns.py",
    "top/test_verilog.py",
    "inline/test_axi.py",
    "top/test_lint.py",
    # on cards that the two of clusters have built by now: who comes early waits, and a core with it
    "offload/test_job_loss.py",
    "offload/test_host_cluster.py",
    "fpga/test_selftest.py",
    "offload/test_broken.py",
    "offload/test_fuzz.py",
    "commands/test_cosim.py",
    "primitive/test_block_ram.py",
    "inline/test_card.py",
    "offload/test_cluster.py",
    "inceptionn/test_decompressor.py",
    "inceptionn/test_compressor.py",
    "frame/test_parts.py",
    "aggregation/test_cosim.py",
    "reduction/test_float_add.py",
    "shells/test_corundum.py",
    "stream/test_queue_proofs.py",
    "aggregation/test_switchml_rtl.py",
    "inline/test_fuzz.py",
    "offload/test_card.py",
    "shells/test_liteeth.py",
    "stream/test_streams.py",
    "offload/test_tags.py",
)


def pytest_configure():
    processes.exit_on_signals()  # compilers and simulators end with it


def pytest_runtest_setup():
    if processes.told_to_end():  # SystemExit is one failed test, and no end
        pytest.exit("told to end", returncode=130)


def pytest_report_header(config):
    return f"GRADNIC_SEED={stimulus.master_seed()}"


def pytest_collection_modifyitems(items):
    if gone := [name for name in LONG if not (ROOT / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py names {gone[0]}, which is gone")
    order = {ROOT / name: at for at, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path, len(LONG)))


@pytest.fixture
def calls():
    """Function (call): how many functions it calls, its work on a machine of any speed."""

    def count(call):
        n = 0

        def heard(_, event, __):
            nonlocal n
            n += event in ("call", "c_call")

        sys.setprofile(heard)
        try:
            call()
        finally:
            sys.setprofile(None)
        return n

    return count


@pytest.fixture
def interrupted():
    """Function (call): calls it, and interrupts it after 0.2 s, as Ctrl-C does."""

    def heard(*_):
        raise KeyboardInterrupt

    def interrupt(call):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            call()

    before = signal.signal(signal.SIGALRM, heard)
    yield interrupt
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)

"""The default UDP port: nobody's, and none that a system draws for its own sockets."""

import pytest

from gradnic.host import dissector
from gradnic.interface import aggregator, inline, offload
from gradnic.interface.formats import UDP_PORT

# IANA's registry of service names and port numbers, state of November 2024: "29170-29998,
# Unassigned", of all transports; neighbors are iuhsctpassoc (29169, SCTP) and bingbang (29999).
UNASSIGNED = range(29170, 29999)
EPHEMERAL = range(32768, 65536)  # Linux: net.ipv4.ip_local_port_range; RFC 6335 from 49152 on
KUBERNETES = range(30000, 32768)  # NodePorts


def test_default_port_is_nobodys():
    paths = range(UDP_PORT, UDP_PORT + 8)  # sources of sprayed frames
    assert set(paths) <= set(UNASSIGNED)
    assert not set(paths) & {*EPHEMERAL, *KUBERNETES}


@pytest.mark.parametrize(
    ("module", "register", "field"),
    [
        (inline, "native", "port"),
        (aggregator, "native", "port"),
        (aggregator, "child_mac_high", "udp_port"),
        (offload, "network", "udp_port"),
    ],
)
def test_registers_have_it_after_reset(module, register, field):
    (found,) = [f for f in module.REGISTERS[register].fields if f.name == field]
    assert found.reset == UDP_PORT


def test_dissector_takes_frames_of_our_version_alone():
    text = dissector.lua("test")
    assert f":add({UDP_PORT}, gradnic)" in text
    assert "function gradnic.dissector(buffer, pinfo, tree)" in text
    assert "bit.rshift(buffer(0, 1):uint(), 6) ~= 1 then return 0 end" in text

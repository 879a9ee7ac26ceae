"""Golden cards with jobs at UDP sockets or TAP devices: host frames without hardware.

Each card of a topology has the port of its host, `gradnic.models.offload.host_port`, at a socket or
a device of its own; between the cards is the golden network, whose links may lose frames. The
servers take cards of RTL as well, `gradnic.sim.offload.rtl_twin`.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
from pathlib import Path

from gradnic.models.frame.address import Address
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.host_neighbor import reply
from gradnic.models.offload.host_port import HostPort, carried, default_address
from gradnic.models.offload.host_tap import way
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.offload.plan import SEQ_UNIT

from gradnic.interface.formats import (
    GRADNIC,
    GRADNIC_START,
    HEAD_BYTES,
    IPV4,
    UDP,
    UDP_PORT,
    Op,
)
from gradnic.interface.host_frame import OPTIONS
from gradnic.interface.job_card import HOSTED
from gradnic.interface.neighbor import CARD_IP, STORE_BYTES

CLOCK = 250e6  # cycles a second that the twin's time units count as, at the hosts' side
TUNSETIFF, TAP, NO_HEAD = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
WORD = 0xFFFFFFFF
SIZES = {
    "beat_bytes": 64, "n_ports": 1, "n_tables": 16, "n_nodes": 64, "n_rows": 512, "n_chunks": 64,
    "n_ranks": 4, "n_peers": 16, "address_width": 32,
}  # fmt: skip
"""What golden cards say of their sizes, which they have no use of: those of the preset jobs512."""
IDLE = 0.01  # seconds until a twin without work looks at its clocks again
QUIET = 4096  # time units in which cards ask for what is missing dozens of times


class _Cluster(JobCluster):
    """Golden cards that count the frames between them, but for those of control."""

    n_moved = 0

    def _send(self, node, port, frame, faults):
        self.n_moved += GRADNIC.parse(frame)["op"] != Op.CONTROL
        super()._send(node, port, frame, faults)


class Twin:
    """Golden cards of one topology, and the ends of their host frames.

    Their tables and addresses are set here; registers keep what hosts write, so that a driver can
    make them ready, and but for ``host``, ``host_ip``, ``watchdog``, in time units, aborts in
    ``job``, and ``status.active`` and ``idle`` do no more. Card k has 198.51.100.2k as ``host_ip``.

    Parameters
    ----------
    tables, topology, n_bytes, options :
        As of `gradnic.models.offload.job_cluster.JobCluster`; n_bytes of memory are all the host's.
    faults : LinkFaults, between the cards

    Attributes
    ----------
    ports : list of `HostPort`
    macs : list of int, addresses that the cards have for their hosts
    """

    def __init__(self, tables, topology, n_bytes, *, faults=None, **options):
        self.cluster = _Cluster(tables, topology, n_bytes, **options)
        self._moved, self._until = 0, 0
        self.cluster.taking = set()  # hosts take by ACKs of EVENTs
        self.faults = faults or LinkFaults(delay=1)
        self.told = [0 for _ in self.cluster.cards]  # completions that their port has
        card = self.cluster.cards[0]
        options = {name: bool(getattr(card.judge, name, False)) for name in OPTIONS}
        options["any_bits"] = options["thc"]
        build = SIZES | {
            "n_active": len(card.contexts), "n_packets": card.judge.n_packets,
            "options": sum(options[name] << k for k, name in enumerate(OPTIONS)),
        }  # fmt: skip
        self.words = [
            _registers(card, options) | {HOSTED["host_ip"].offset: CARD_IP + 2 * node}
            for node, card in enumerate(self.cluster.cards)
        ]
        self.ports = [
            HostPort(
                card.memory, card.judge.regions, build=build,
                mac=default_address(0x020000000000 + node),
                read_register=lambda at, node=node: self._read(node, at),
                write_register=lambda at, word, node=node: self._write(node, at, word),
                post=card.post,
                take=lambda node=node: self._take(node),
            )
            for node, card in enumerate(self.cluster.cards)
        ]  # fmt: skip
        for port in self.ports:
            port.events = False  # as after reset
        self.macs = [port.mac for port in self.ports]

    def busy(self):
        """Whether any card has something to do but wait for hosts: its own, or those of others that
        have not posted a job, which nothing has moved for since some time.
        """
        return self._waits() and self.cluster.now < self._until

    def rest(self, cycles):
        """Time goes on while nobody is busy."""
        self.cluster.now += QUIET if self._waits() else cycles

    def _waits(self):
        return self.cluster.busy() or any(port.writes.n_untold for port in self.ports)

    def step(self):
        """One time unit of all cards: [(node, frame to its host)]."""
        self.cluster.step(self.faults)
        frames, now = [], self.cluster.now
        for node, (card, port) in enumerate(zip(self.cluster.cards, self.ports, strict=True)):
            for completion in list(card.completions)[self.told[node] :]:
                self.told[node] += 1
                frames += [(node, frame) for frame in port.event(completion, now)]
            frames += [(node, frame) for frame in port.tick(now)]
        if frames or self.cluster.n_moved != self._moved:
            self._moved, self._until = self.cluster.n_moved, now + QUIET
        return frames

    def room(self, node):
        """Whether card `node` takes a frame of its host now: always, as it answers at once."""
        return True

    def frame(self, node, frame):
        """What card `node` answers to a frame of its host; one to the network ends here."""
        port, ip = self.ports[node], self.words[node][HOSTED["host_ip"].offset]
        self._until = self.cluster.now + QUIET
        to = way(frame, port.mac, ip)
        if to == "requests":
            return [reply(frame, port.mac, ip)] if len(frame) <= STORE_BYTES else []
        return port.frame(frame, self.cluster.now) if to == "port" else []

    def _read(self, node, address):
        word = self.words[node].get(address, 0)
        if address != HOSTED["status"].offset:
            return word
        card, (active, idle, *_) = self.cluster.cards[node], HOSTED["status"].fields
        at_work = sum(1 << k for k, one in enumerate(card.contexts) if one)
        return word | at_work << active.lsb | card.idle() << idle.lsb

    def _write(self, node, address, word):
        card, (_, _, abort, id, any_) = self.cluster.cards[node], HOSTED["job"].fields
        turned = self.words[node].get(address, 0) ^ word
        self.words[node][address] = word
        if address == HOSTED["host"].offset:
            self.ports[node].events = bool(word & 1)
        elif address == HOSTED["watchdog"].offset:
            card.watchdog = word
        elif address == HOSTED["job"].offset and turned & abort.mask:
            card.abort(None if word & any_.mask else (word & id.mask) >> id.lsb)

    def _take(self, node):
        self.cluster.cards[node].take()
        self.told[node] -= 1


def _registers(card, options):
    """{offset: word} of what a driver reads: what the card was built with, and who it is."""
    own, settings = card.own, card.settings
    told = {
        "build": {"bytes": SIZES["beat_bytes"], "ports": SIZES["n_ports"],
                  "ranks": SIZES["n_ranks"], "nodes": SIZES["n_nodes"],
                  "peer_bits": (SIZES["n_peers"] - 1).bit_length()},
        "longest": {"units": card.judge.max_elems // SEQ_UNIT},
        "capacity": {"rows": SIZES["n_rows"], "chunks": SIZES["n_chunks"]},
        "status": {"n_active": len(card.contexts), "n_engines": len(card.contexts),
                   "n_tables": SIZES["n_tables"], **options},
        "mac_low": {"value": own.mac & WORD},
        "mac_high": {"value": own.mac >> 32, "node": settings.node, "tenant": settings.job},
        "ip": {"value": own.ip},
    }  # fmt: skip
    return {
        HOSTED[name].offset: sum(
            int(fields.get(field.name, 0)) << field.lsb for field in HOSTED[name].fields
        )
        for name, fields in told.items()
    }


class TwinServer:
    """A twin whose ports are at UDP sockets, one after the other from a first one on.

    As from a card, answers go to the address that each frame of the twin names.

    twin : Twin or RtlTwin. host : address to listen at. port : of node 0; 0: any that are free.

    OSError, with address and port as its filename, where they cannot be had.

    Attributes
    ----------
    ends : list of (address, port), by node
    n_frames : int, of hosts
    """

    def __init__(self, twin, *, host="127.0.0.1", port=UDP_PORT):
        self.twin, self.n_frames = twin, 0
        self.sockets = []
        try:
            for node in range(len(twin.macs)):
                end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                self.sockets.append(end)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
                end.bind((host, port and port + node))
                end.setblocking(False)
        except OSError as error:
            self.close()
            error.filename = f"{host}:{port and port + node}"
            raise
        self.ends = [end.getsockname() for end in self.sockets]

    def close(self):
        """Give the sockets back."""
        for end in self.sockets:
            end.close()

    def serve(self, go_on=lambda: True):
        """Answer until `go_on()` is no longer true: asked between two time units, and when idle."""
        nodes = {end: node for node, end in enumerate(self.sockets)}
        while go_on():
            waits = 0 if self.twin.busy() else IDLE
            ready, _, _ = select.select(self.sockets, (), (), waits)
            if waits and not ready:
                self.twin.rest(round(IDLE * CLOCK))
            for end in ready:
                self._hear(nodes[end], end)
            for node, frame in self.twin.step():
                self._tell(node, frame)

    def _hear(self, node, end):
        for _ in range(64):
            if not self.twin.room(node):
                return
            try:
                octets, host = end.recvfrom(1 << 16)
            except (BlockingIOError, ConnectionError):  # no more, or that host is gone
                return
            self.n_frames += 1
            if len(octets) < HEAD_BYTES - GRADNIC_START:
                continue
            for frame in self.twin.frame(node, self._framed(node, octets, host)):
                self._tell(node, frame)

    def _framed(self, node, octets, host):
        """The frame that a NIC would have made of a datagram."""
        address, port = host
        card = Address(0, self.twin.macs[node], 0x7F000001)
        source = int.from_bytes(socket.inet_aton(address), "big")
        return carried(Address(0, 0x020000000000, source, port), card, octets)

    def _tell(self, node, frame):
        address = socket.inet_ntoa(IPV4.destination.get(frame).to_bytes(4, "big"))
        with contextlib.suppress(OSError):  # no way there: it is lost
            self.sockets[node].sendto(
                frame[GRADNIC_START:], (address, UDP.destination_port.get(frame))
            )


class TapServer(TwinServer):
    """A twin whose cards are behind TAP devices: Ethernet devices, to Linux and all its programs.

    With an address, ``ip addr add 198.51.100.1/31 dev NAME`` and ``ip link set NAME up``, the card
    is found by ARP, answers ping, and `gradnic.host.frames.udp` reaches it at 198.51.100.0.

    twin : Twin or RtlTwin. names : of the devices, one a node, up to 15 characters; made where
    there are none.

    OSError where the process may not (CAP_NET_ADMIN), or there is no /dev/net/tun; from `serve`,
    with the device as its filename, where one has been deleted.
    """

    def __init__(self, twin, names):
        self.twin, self.n_frames, self.sockets = twin, 0, []
        self._names = tuple(names)
        try:
            for name in names:
                end = Path("/dev/net/tun").open("r+b", buffering=0)  # noqa: SIM115 - `close` does
                self.sockets.append(end)
                fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), TAP | NO_HEAD))
                os.set_blocking(end.fileno(), False)
        except OSError as error:
            self.close()
            error.filename = error.filename or name
            raise

    def _hear(self, node, end):
        for _ in range(64):
            try:
                frame = end.read(1 << 16) if self.twin.room(node) else None
            except OSError as error:
                error.filename = self._names[node]
                raise
            if frame is None:
                return
            self.n_frames += 1
            for answer in self.twin.frame(node, frame):
                self._tell(node, answer)

    def _tell(self, node, frame):
        with contextlib.suppress(OSError):  # the device is down: it is lost
            self.sockets[node].write(frame)

"""Every number that is neither computed nor a choice of the user, with where it comes from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constant:
    """A number, its unit, and its source.

    placed : of a rate of RTL, the record in ``fpga/flow/baseline.json`` that it follows from, and
    its field; a test holds both together.
    """

    value: float
    unit: str
    source: str
    placed: tuple[str, str] | None = None


_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch ResNet-50 v1.5, training performance, one GPU"
_HERE = "measured: gradnic bench host, one core of a 2-core x86-64 server, November 2026"
_BENCH = "measured: gradnic bench, one core of a 2-core x86-64 server (docs: codec, thc)"
_POWERSGD = (
    "PowerSGD of rank 4, a matrix of 1024 x 1024, numpy, one core; measured: gradnic bench host, "
    "beside host.add of 6.7e9 bytes/s, and scaled to that of this table"
)
_ECP5 = "placed and routed by nextpnr on an ECP5-85, speed grade 8"
_DCTCP = "Alizadeh et al., Data Center TCP, SIGCOMM 2010"
_PFABRIC = "Alizadeh et al., pFabric, SIGCOMM 2013"
_AUTHORS = "settings of the MultiTree authors' released simulator"


def _placed(gbps: float, block: str, what: str) -> Constant:
    """Bytes of FP32 a second that a block takes where it was placed and routed."""
    return Constant(gbps * 1e9 / 8, "bytes/s", f"{what}, {_ECP5}", (block, "gbps"))


CONSTANTS = {
    "v100-fp32.resnet50": Constant(367, "images/s", f"{_NVIDIA} V100 16 GB, FP32"),
    "v100-amp.resnet50": Constant(1200, "images/s", f"{_NVIDIA} V100 16 GB, mixed precision"),
    "a100-tf32.resnet50": Constant(938, "images/s", f"{_NVIDIA} A100 80 GB, TF32"),
    "pcie3x16": Constant(15.75e9, "bytes/s", "PCIe 3.0: 16 lanes, 8 GT/s, 128b/130b"),
    "host.add": Constant(15.96e9, "bytes/s", f"float32 sums in numpy, {_HERE}"),
    "host.lookup": Constant(2.76e9, "values/s", f"THC lookup and 8-bit sum, numba, {_HERE}"),
    "host.message": Constant(
        7.3e-6, "s",
        "half a round trip over loopback TCP, measured by hand in November 2026; gradnic bench "
        "host gives 18 to 29 us on the same kind of virtual machine, which would slow the "
        "baselines",
    ),
    "host.inceptionn.encode": Constant(1.576e9, "bytes/s", _BENCH),
    "host.inceptionn.decode": Constant(1.266e9, "bytes/s", _BENCH),
    "host.bf16.encode": Constant(11.25e9, "bytes/s", _BENCH),
    "host.bf16.decode": Constant(12.65e9, "bytes/s", _BENCH),
    "host.thc.encode": Constant(0.535e9, "bytes/s", _BENCH),
    "host.thc.decode": Constant(0.304e9, "bytes/s", _BENCH),
    "host.powersgd.encode": Constant(3.2e9, "bytes/s", f"errors added, {_POWERSGD}"),
    "host.powersgd.decode": Constant(5.7e9, "bytes/s", f"errors kept, {_POWERSGD}"),
    "gpu.thc": Constant(
        2039e9 / 3, "bytes/s",
        "derived: memory rate of the A100 80 GB SXM, 2,039 GB/s by its data sheet, over three "
        "passes of 4 bytes a value (norm, rotate, write); a block of 1024 stays in shared memory",
    ),
    "card.clock": Constant(
        153.28e6, "Hz", f"offload card, 256 bits, {_ECP5}", ("offload-inc-8", "fmax_mhz")
    ),
    "card.rate": _placed(39.24, "offload-inc-8", "offload card, 256 bits"),
    "inceptionn.encode": _placed(139.21, "compressor-16", "compressor, 16 lanes"),
    "inceptionn.decode": _placed(141.4, "decompressor-16", "decompressor, 16 lanes"),
    "thc.norm": _placed(110.73, "thc-norm-16", "norm, 16 lanes"),
    "thc.encode": _placed(112.77, "thc-encoder-16", "encoder, 16 lanes"),
    "thc.decode": _placed(99.4, "thc-decoder-16", "decoder, 16 lanes"),
    "aggregator.rate": _placed(103.81, "aggregate-16", "in-network aggregator, packets in"),
    "imagenet.images": Constant(1_281_167, "images", "ILSVRC 2012, training set"),
    "stack.rate": Constant(
        25e9, "bit/s",
        "beyond which faster links, up to 100 Gb/s, did not speed up Horovod on AWS: Zhang et al., "
        "Is Network the Bottleneck of Distributed Training?, NetAI 2020 (by its abstract and a "
        "summary; the paper itself was not at hand)",
    ),
    "switch.hop": Constant(
        1e-6, "s", "chosen: cable, cut-through switch and MACs of one hop of 10 or 100 GbE"
    ),
    "frame.head": Constant(64 + 24, "bytes", "gradnic head, FCS, preamble and gap"),
    "frame.floats": Constant(336, "floats", "packet whose worst coding fits an MTU of 1500"),
    "tcp.payload": Constant(1448, "bytes", "MTU 1500 less IP, TCP and time stamps"),
    "tcp.head": Constant(90, "bytes", "Ethernet 14, IP 20, TCP 32, FCS, preamble and gap 24"),
    "packet.values": Constant(1408, "bytes", "chosen: 352 floats, as the card's packets have them"),
    "packet.head": Constant(88, "bytes", "as frame.head"),
    "packet.control": Constant(84, "bytes", "the least Ethernet frame, preamble and gap"),
    "dctcp.mark": Constant(65, "packets", f"{_DCTCP}: K at 10 Gb/s, kept at 100"),
    "dctcp.queue": Constant(250, "packets", "chosen: drops at nearly four times K"),
    "dctcp.gain": Constant(1 / 16, "of 1", f"{_DCTCP}: g"),
    "dctcp.alpha": Constant(1, "of 1", "RFC 8257: alpha at the start"),
    "dctcp.window": Constant(10, "packets", "RFC 6928: window at the start"),
    "dctcp.timeout": Constant(0.01, "s", f"{_DCTCP}: least timeout of its tests"),
    "pfabric.window": Constant(
        67, "packets", "derived: 100 Gb/s times the 8 us of a round trip through a spine"
    ),
    "pfabric.queue": Constant(134, "packets", f"{_PFABRIC}: two bandwidth-delay products"),
    "pfabric.timeout": Constant(30e-6, "s", f"{_PFABRIC}: about three round trips"),
    "pfabric.probing": Constant(
        5, "timeouts", f"{_PFABRIC}: in a row, from which on one packet goes at a time"
    ),
    "queue.mark": Constant(
        40, "packets", "chosen, since DLCP's are not known: of the most urgent of eight queues"
    ),
    "queue.more": Constant(5, "packets", "chosen: more for each queue behind it, up to dctcp.mark"),
    "queue.limit": Constant(250, "packets", "chosen: as dctcp.queue"),
    "trimming.heads": Constant(1000, "heads", "chosen: 84 kB"),
    "sender.run": Constant(64, "packets", "chosen: between two PROBEs"),
    "sender.runs": Constant(2, "runs", "chosen: of a flow under way at once"),
    "loss.frames": Constant(0.01, "of 1", "chosen: share of frames lost where a name says 1 %"),
    "loss.bound": Constant(0.02, "of 1", "chosen: p on the way up under that loss"),
    "array.side": Constant(32, "multipliers", "MultiTree's paper: rows, and columns"),
    "array.count": Constant(16, "arrays", "MultiTree's paper"),
    "array.clock": Constant(1e9, "Hz", "MultiTree's paper"),
    "multitree.link": Constant(16, "bytes/cycle", _AUTHORS),
    "multitree.latency": Constant(150, "cycles", _AUTHORS),
    "multitree.packet": Constant(256, "bytes", _AUTHORS),
    "multitree.head": Constant(16, "bytes", _AUTHORS),
}  # fmt: skip


def value(name: str) -> float:
    """The number of a constant; KeyError for a name that is not in the list."""
    return CONSTANTS[name].value


def slowest(*names: str) -> float:
    """The least of several constants: what a chain of them sustains."""
    return min(map(value, names))

"""The main job: real gradients of four workers, summed in a ring of RTL cards, and what it saved.

Everything that the page of `gradnic.sim.report.page` shows is in the one dict that `run` returns,
all of it JSON: figures, histograms already counted, and the bytes and cycles of one frame.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.inceptionn.measure import fidelity, inceptionn_stats
from gradnic.models.inline.ring import Framing

from gradnic import processes

from ..engine import tools
from ..inline import ring as cluster
from ..training import network as training
from . import offload as report_offload
from . import star as report_star

EXPONENT = 117  # bound 2^-10
N_FLOATS = 336  # floats a frame
N_WORKERS = 4
ITERATIONS = (1, 200)
LINK_BYTES = 8  # bytes a cycle: 10 Gb/s where 8 lanes run at 156.25 MHz
OCTAVES = (-26, 4)  # of the histogram, below 2^-26 counts into its first bin
BINS_PER_OCTAVE = 4
ERROR_BINS = 64


def run(*, lanes=8, link_bytes=LINK_BYTES, n_floats=None, on_stage=None, on_step=None):
    """Train, build the card, and sum the gradients of each of `ITERATIONS`, coded and uncoded.

    n_floats : values of each gradient to use; None, all 235,146. on_stage(text, steps) announces
    a stage, on_step(k) its progress; both optional.

    Returns the dict of the module's head. `ok` in it is False if any frame or replica differed.
    """
    stage, step = on_stage or (lambda *_: None), on_step or (lambda _: None)
    stage("setting up Yosys, once after an install", None)
    tools.warm_up()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, processes.die_on_signals) as beside:
        offload = beside.submit(report_offload.run, n_floats)
        result, gradients = rings(lanes, link_bytes, n_floats, stage, step)
        stage("sum in the network: aggregator and engines", None)
        result["star"] = report_star.run(gradients)
        stage("offload cards over networks that lose", None)
        result["offload"] = offload.result()
    result["ok"] &= result["star"]["ok"] and all(one["ok"] for one in result["offload"])
    return result


def rings(lanes, link_bytes, n_floats, stage, step):
    """The part on in-line cards, and the gradients of the last iteration, (workers, values).

    Arguments as of `run`, all of them given.
    """
    stage("training", max(ITERATIONS))
    kept, network = training.train(
        ITERATIONS, n_workers=N_WORKERS, loss="sum", on_iteration=lambda i, _: step(i)
    )
    images, labels = training.load_images()
    stage(f"building the card, {lanes} lanes", None)
    model = cluster.build_card(lanes)
    n_steps = 2 * (N_WORKERS - 1)
    result = {
        "ok": True,
        "nodes": N_WORKERS,
        "lanes": lanes,
        "exponent": EXPONENT,
        "bound": 2.0 ** (EXPONENT - 127),
        "floats_a_frame": N_FLOATS,
        "link_bytes": link_bytes,
        "parameters": int(network.parameters.size),
        "accuracy": network.accuracy(images[training.N_TRAIN :], labels[training.N_TRAIN :]),
        "iterations": {},
    }
    for iteration, gradients in kept.items():
        gradients = gradients[:, :n_floats]
        runs = {}
        for codec in ("inceptionn", "none"):
            what = "coded" if codec == "inceptionn" else "uncoded"
            stage(f"iteration {iteration}, {what} all-reduce", n_steps)
            runs[codec] = cluster.cosim(
                gradients,
                model,
                codec=codec,
                exponent=EXPONENT,
                n_floats=N_FLOATS,
                link_bytes=link_bytes,
                on_step=step,
            )
        result["ok"] &= runs["inceptionn"].ok and runs["none"].ok
        result["iterations"][str(iteration)] = _figures(gradients, runs)
    result["frame"] = one_frame(runs["inceptionn"], 4 * lanes)
    return result, gradients


def _figures(gradients, runs):
    """Figures of one iteration: of the gradients, of the sum, and of both runs."""
    coded, uncoded = runs["inceptionn"], runs["none"]
    exact = gradients.astype(np.float64).sum(axis=0)
    nmse, worst = fidelity(exact, coded.replicas[0]) if len(coded.replicas) else (1.0, 0.0)
    return {
        "gradients": inceptionn_stats(gradients, exponent=EXPONENT, n_floats=N_FLOATS),
        "sum": {"nmse": nmse, "max_abs_error": worst},
        "coded": coded.summary(),
        "uncoded": uncoded.summary(),
        "wires": {
            "coded": [[_total(frames) for frames in s.wire] for s in coded.traffic],
            "uncoded": [[_total(frames) for frames in s.wire] for s in uncoded.traffic],
        },
        "histogram": histogram(gradients),
        "errors": error_histogram(gradients),
    }


def _total(frames):
    return sum(cluster.wire_bytes(f) for f in frames)


def histogram(x):
    """How many values have which magnitude: {edges: log2, counts, zeros}."""
    magnitude = np.abs(x[x != 0].astype(np.float64))
    edges = (
        np.arange(OCTAVES[0] * BINS_PER_OCTAVE, OCTAVES[1] * BINS_PER_OCTAVE + 1) / BINS_PER_OCTAVE
    )
    octaves = np.clip(np.log2(magnitude), edges[0], np.nextafter(edges[-1], 0))
    counts, _ = np.histogram(octaves, edges)
    return {
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "zeros": int((x == 0).sum()),
    }


def error_histogram(x):
    """How far values move in one pass, by tag: {edges: |error| / bound, counts: [per tag 0..2]}.

    Values that pass exactly, RAW ones among them, are left out.
    """
    error = np.abs(x.astype(np.float64) - inceptionn.image(x, exponent=EXPONENT))
    tag = inceptionn.tags(x, exponent=EXPONENT)
    edges = np.linspace(0, 1, ERROR_BINS + 1)
    share = error / 2.0 ** (EXPONENT - 127)
    counts = [np.histogram(share[(tag == t) & (error > 0)], edges)[0].tolist() for t in range(3)]
    return {"edges": edges.tolist(), "counts": counts}


def one_frame(cosim, lane_bytes):
    """One frame's way from host to host: its bytes raw and coded, and when each beat moved.

    Of the first step, worker 0 to 1: the first frame whose first eight floats have empty, one-byte
    and two-byte lanes, else the first of all. Returns {number, raw, coded: hex, floats, restored:
    the first eight, tags: of all floats, cycles: {port: [cycle of each beat]}, lane_bytes}.
    """
    traffic, cycles = cosim.traffic[0], cosim.beat_cycles[0][0]
    raw, coded, restored = traffic.sent[0], traffic.wire[0], traffic.received[1]
    tags = [inceptionn.tags(Framing.floats([frame]), exponent=EXPONENT) for frame in raw]
    mixed = [k for k, t in enumerate(tags) if set(t[:8].tolist()) >= {0, 1, 2}]
    number = mixed[0] if mixed else 0
    frames = {"host_tx": raw, "mac_tx": coded, "mac_rx": coded, "host_rx": restored}
    return {
        "number": number,
        "raw": raw[number].hex(),
        "coded": coded[number].hex(),
        "floats": Framing.floats(raw[number : number + 1])[:8].tolist(),
        "restored": Framing.floats(restored[number : number + 1])[:8].tolist(),
        "tags": tags[number].tolist(),
        "cycles": {p: _of_frame(cycles[p], f, number, lane_bytes) for p, f in frames.items()},
        "lane_bytes": lane_bytes,
    }


def _of_frame(cycles, frames, number, lane_bytes):
    """The entries of `cycles`, one a beat of all `frames`, that belong to frame `number`."""
    ends = np.cumsum([-(-len(frame) // lane_bytes) for frame in frames])
    start = int(ends[number - 1]) if number else 0
    return cycles[start : int(ends[number])].tolist()

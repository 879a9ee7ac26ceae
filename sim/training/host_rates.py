"""What a host does, measured: sums, THC's lookup, PowerSGD's factors, a message of software.

The rates of servers and of TCP in `gradnic.models.training.constants` are those of this module.
"""

import math
import socket
import time
from multiprocessing import get_context
from statistics import median

import numba
import numpy as np

N_FLOATS, N_INDICES = 1 << 22, 1 << 22  # 16 MiB of floats, 2 MiB of packed indices
N_MESSAGES = 2000
MATRIX, RANK = (1024, 1024), 4  # of PowerSGD


@numba.njit(boundscheck=False)
def _lookup(packed, table, sums):
    for k in range(packed.size):
        sums[2 * k] += table[packed[k] >> 4]
        sums[2 * k + 1] += table[packed[k] & 15]


def add():
    """Bytes of float32 a second that numpy adds to a sum in place."""
    rng = np.random.default_rng(1)
    total, values = (rng.standard_normal(N_FLOATS, np.float32) for _ in range(2))
    start = time.process_time()
    np.add(total, values, out=total)
    return values.nbytes / (time.process_time() - start)


def lookup():
    """Packed indices of 4 bits a second that are looked up and added to sums of 8 bits."""
    packed = np.random.default_rng(1).integers(0, 256, N_INDICES // 2, np.uint8)
    table, sums = np.arange(16, dtype=np.uint8) * 2, np.zeros(N_INDICES, np.uint8)
    _lookup(packed[:1], table, sums)
    start = time.process_time()
    _lookup(packed, table, sums)
    return N_INDICES / (time.process_time() - start)


def _powersgd():
    """Seconds of a worker's step with one weight matrix: (before, behind) its all-reduces."""
    rng = np.random.default_rng(1)
    gradient, error = (rng.standard_normal(MATRIX, np.float32) for _ in range(2))
    right = rng.standard_normal((MATRIX[1], RANK), np.float32)
    start = time.process_time()
    np.add(gradient, error, out=gradient)
    left = np.linalg.qr(gradient @ right)[0]
    right = gradient.T @ left
    middle = time.process_time()
    np.subtract(gradient, left @ right.T, out=error)
    return middle - start, time.process_time() - middle


def powersgd_encode():
    """Bytes of float32 a second that become PowerSGD's two factors of rank 4, errors added."""
    return 4 * math.prod(MATRIX) / _powersgd()[0]


def powersgd_decode():
    """Bytes of float32 a second that come of two factors of rank 4, errors kept."""
    return 4 * math.prod(MATRIX) / _powersgd()[1]


def _echo(port):
    with socket.create_connection(("127.0.0.1", port)) as far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := far.recv(1):
            far.sendall(data)


def message():
    """Seconds of half a round trip of one byte between two processes over loopback TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        other = get_context("spawn").Process(target=_echo, args=[server.getsockname()[1]])
        other.start()
        near, _ = server.accept()
    with near:
        near.settimeout(60)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        for _ in range(N_MESSAGES):
            near.sendall(b"x")
            near.recv(1)
        seconds = time.perf_counter() - start
    other.join()
    return seconds / N_MESSAGES / 2


MEASURES = {
    "host.add": add,
    "host.lookup": lookup,
    "host.powersgd.encode": powersgd_encode,
    "host.powersgd.decode": powersgd_decode,
    "host.message": message,
}


def measure(rounds):
    """{name of the constant: median of `rounds` measures}, all in turn."""
    found = {name: [] for name in MEASURES}
    for _ in range(rounds):
        for name, function in MEASURES.items():
            found[name].append(function())
    return {name: median(values) for name, values in found.items()}

"""How fast host frames are at whole cards of RTL, while these sum gradients; and how soon a job is.

Frames of node 0's host are made here, back to back; those of the others by their drivers. Each
memory port of a card moves a beat a cycle: what a shell's memory shares among them comes on top.
"""

from gradnic.models.offload.host_port import parse, request

from gradnic.interface.host_frame import ACK_FRAMES, MAX_PAYLOAD, Kind
from gradnic.interface.job import Job, JobStatus

from .host_cluster import card_and_host

POLL = 16  # cycles between two looks
READ = 45056  # bytes asked for at a time: 32 pieces of 1,408
LIMIT = 100_000  # cycles


class Raw:
    """The host of one node, whose frames leave as fast as the line takes them.

    cluster : `HostCluster`, open. Takes its session's place.
    """

    def __init__(self, cluster, node, payload):
        self.cluster, self.node, self.session = cluster, node, cluster.now & 0xFFFFFFFF
        self.ends, self.seq, self.ended = card_and_host(node), 0, 0
        self.heard = len(cluster.to_host(node, 0))
        self.rules = cluster._by
        self.ask(Kind.HELLO, elems=payload)
        self.wait(lambda frame: frame["kind"] == Kind.HELLO)

    def ask(self, kind, payload=b"", **fields):
        frame = request(*self.ends, kind, payload, seq=self.seq, session=self.session, **fields)
        self.seq += kind != Kind.ACK
        self.cluster.send(self.node, 0, frame)
        return frame

    def wait(self, done):
        """Cycle after that in which the first answer for which `done` came; EVENTs are taken."""
        end = self.cluster.now + LIMIT
        while self.cluster.now < end:
            self.cluster._advance(self.rules, POLL)
            frames = list(map(parse, self.cluster.to_host(self.node, 0, self.heard)))
            self.heard += len(frames)
            for one in frames:
                if one["kind"] == Kind.EVENT:
                    self.ended += one["seq"] == self.ended
                    ack = request(*self.ends, Kind.ACK, seq=one["seq"], session=self.session)
                    self.cluster.send(self.node, 0, ack)
            if any(map(done, frames)):
                return self.cluster.now
        raise RuntimeError(f"no answer in {LIMIT} cycles")


def post_to_packet(cluster, job):
    """Cycles from the last beat of a POST to node 0 to the first beat of the packet that follows,
    of a card at rest.
    """
    raw, begin = Raw(cluster, 0, MAX_PAYLOAD), cluster.now
    frame = raw.ask(Kind.POST, job.pack())
    raw.wait(lambda frame: frame["kind"] == Kind.ACK)
    while not (left := [one for one in cluster.sent if one[1] == 0 and one[0] > begin]):
        cluster._advance(raw.rules, POLL)
    at, _, _, packet = left[0]
    beats = [-(-len(one) // cluster.n_bytes) for one in (frame, packet)]
    return at - (beats[1] - 1) - (begin + beats[0])


class Load:
    """The same jobs again and again, alone or beside what node 0's host writes and reads.

    cluster : `HostCluster`, open, with gradients in all memories from byte 0 on. elems : of a job.
    result : byte address. room : (first byte, bytes) that the host writes and reads.
    """

    def __init__(self, cluster, elems, result, room, *, n_jobs=4):
        self.cluster, self.room, self.elems, self.result = cluster, room, elems, result
        self.n_jobs, self.gen = n_jobs, 0

    def play(self, payload, load=None, n_bytes=0):
        """(cycles of the jobs, payload per beat of the line of what `load` moved).

        load : None, `Kind.WRITE` or `Kind.READ`, of n_bytes.
        """
        raw = Raw(self.cluster, 0, payload)
        self.gen += 1
        jobs = [
            Job(id=self.gen, tensor=k, gen=self.gen, elems=self.elems, source=0, result=self.result)
            for k in range(self.n_jobs)
        ]
        for driver in self.cluster.drivers[1:]:
            for job in jobs:
                driver.post(job)
        begin = self.cluster.now
        for job in jobs:
            raw.ask(Kind.POST, job.pack())
        rate = load and getattr(self, f"_{load.name.lower()}s")(raw, payload, n_bytes)
        while raw.ended < self.n_jobs:
            raw.wait(lambda frame: frame["kind"] == Kind.EVENT)
        cycles = self.cluster.now - begin
        for driver in self.cluster.drivers[1:]:
            for _ in jobs:
                assert driver.completion(1.0).status == JobStatus.DONE
        return cycles, rate

    def _places(self, size, n):
        first, room = self.room
        return [first + size * k % (room - size) // 64 * 64 for k in range(n)]

    def _writes(self, raw, payload, n_bytes):
        """Between the first ACK of `ACK_FRAMES` and the last."""
        n = -(-n_bytes // payload // ACK_FRAMES) * ACK_FRAMES
        octets = bytes(range(256)) * (payload // 256 + 1)
        first, stored = raw.seq, []
        for place in self._places(payload, n):
            raw.ask(Kind.WRITE, octets[:payload], address=place)

        def all_stored(frame):
            done = frame["next"] - first & 0xFFFF if frame["kind"] == Kind.ACK else 0
            if 0 < done <= n:
                stored.append((self.cluster.now, done * payload))
            return done == n

        raw.wait(all_stored)
        return self._rate(stored)

    def _reads(self, raw, payload, n_bytes):
        """Between the first DATA and the last."""
        places, came = self._places(READ, -(-n_bytes // READ)), [(0, 0)]

        def all_came(frame):
            if frame["kind"] == Kind.DATA:
                came.append((self.cluster.now, came[-1][1] + frame["elems"]))
            return came[-1][1] >= len(places) * READ

        for place in places:
            raw.ask(Kind.READ, address=place, elems=READ)
        raw.wait(all_came)
        return self._rate(came[1:])

    def _rate(self, marks):
        (begin, before), (end, all_of) = marks[0], marks[-1]
        return (all_of - before) / self.cluster.n_bytes / (end - begin)

"""How fast host frames are at whole cards of RTL, while these sum gradients; and how soon a job is.

Frames of node 0's host are made here, back to back; those of the others by their drivers. Each
memory port of a card moves a beat a cycle: what a shell's memory shares among them comes on top.
"""

from gradnic.models.offload.host_port import parse, request

from gradnic.interface.host_frame import MAX_PAYLOAD, Kind
from gradnic.interface.job import Job, JobStatus

from .host_cluster import card_and_host

POLL = 8  # cycles between two looks
READ = 45056  # bytes asked for at a time: 32 pieces of 1,408
LIMIT = 1_000_000  # cycles


class Raw:
    """The host of one node, whose frames leave as fast as the line takes them.

    cluster : `HostCluster`, open. Takes its session's place.
    """

    def __init__(self, cluster, node, payload):
        self.cluster, self.node, self.payload = cluster, node, payload
        self.ends, self.seq, self.ended = card_and_host(node), 0, 0
        self.heard = len(cluster.to_host(node, 0))
        self.rules = cluster._rules(cluster._faults)
        self.ask(Kind.HELLO, elems=payload)
        self.wait(lambda told: told["kind"] == Kind.HELLO)

    def ask(self, kind, payload=b"", **fields):
        frame = request(*self.ends, kind, payload, seq=self.seq, session=0x5EED0000 | self.payload,
                        **fields)  # fmt: skip
        self.seq += kind != Kind.ACK
        self.cluster.send(self.node, 0, frame)
        return frame

    def wait(self, done):
        """Cycle after that in which the first answer for which `done` came; EVENTs are taken."""
        end = self.cluster.now + LIMIT
        while self.cluster.now < end:
            self.cluster._advance(self.rules, POLL)
            told = list(map(parse, self.cluster.to_host(self.node, 0)[self.heard :]))
            self.heard += len(told)
            for one in told:
                if one["kind"] == Kind.EVENT:
                    self.ended += one["seq"] == self.ended
                    session = 0x5EED0000 | self.payload
                    ack = request(*self.ends, Kind.ACK, seq=one["seq"], session=session)
                    self.cluster.send(self.node, 0, ack)
            if any(map(done, told)):
                return self.cluster.now
        raise RuntimeError(f"no answer in {LIMIT} cycles")


def post_to_packet(cluster, job):
    """Cycles from the last beat of a POST to node 0 to the first beat of the packet that follows,
    of a card at rest.
    """
    raw, begin = Raw(cluster, 0, MAX_PAYLOAD), cluster.now
    frame = raw.ask(Kind.POST, job.pack())
    raw.wait(lambda told: told["kind"] == Kind.ACK)
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
            raw.wait(lambda told: told["kind"] == Kind.EVENT)
        cycles = self.cluster.now - begin
        for driver in self.cluster.drivers[1:]:
            for _ in jobs:
                assert driver.completion(1.0).status == JobStatus.DONE
        return cycles, rate

    def _rate(self, n_bytes, begin):
        return n_bytes / self.cluster.n_bytes / (self.cluster.now - begin)

    def _places(self, size, n_bytes):
        first, room = self.room
        return [first + size * k % (room - size) // 64 * 64 for k in range(n_bytes // size)]

    def _writes(self, raw, payload, n_bytes):
        begin, places = self.cluster.now, self._places(payload, n_bytes)
        octets = bytes(range(256)) * (payload // 256 + 1)
        for place in places:
            raw.ask(Kind.WRITE, octets[:payload], address=place)
        raw.wait(lambda told: (told["kind"], told["next"]) == (Kind.ACK, raw.seq & 0xFFFF))
        return self._rate(len(places) * payload, begin)

    def _reads(self, raw, payload, n_bytes):
        begin, places, got = self.cluster.now, self._places(READ, n_bytes), 0

        def all_came(told):
            nonlocal got
            got += told["elems"] if told["kind"] == Kind.DATA else 0
            return got >= len(places) * READ

        for place in places:
            raw.ask(Kind.READ, address=place, elems=READ)
        raw.wait(all_came)
        return self._rate(len(places) * READ, begin)

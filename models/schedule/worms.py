"""Messages on their way over links and through switches, whose buffers fill and hold back.

A message is a worm of bytes. It takes the places of its path one after the other, each at its own
share of the place's bytes per cycle, in the order in which heads come, and keeps a place until its
last byte has passed. At the end of each link lies a buffer; the link sends what it has credits for.
Bytes that wait for a place ahead fill the buffer, whoever they belong to; as they go on, credits
return, a latency later. What stays there lets others pass: there is a queue per place ahead,
and one store for all.

Bytes move in parts: so many from then to then. A part is as long as what has come, and what there
are credits for, allow, so an unhindered message is one part, and the arithmetic is exact in time
but for what changes its pace within a part.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Any

RELEASE, PART, READY, HEAD, DONE, FINAL = range(6)  # events, (time, kind, message, ...)
_LEAST = 1e-6  # bytes that are none


class _Stage:
    """A message at one place of its path.

    share : of the place, bytes per cycle. pace : cycles per byte. left : bytes that have not gone.
    at : until when the last part goes. supply, line : what has come, and credits, as (from when,
    cycles until the last, bytes); have : bytes of `line`; grain : see `_insert`. window : credits
    that it has, those that will return included; most : that it may have. debt : bytes that return
    and have been spent. clear : nothing ahead can hold it up any more. on : it takes its share of
    the place now. halted : it could go on, and waits for the place. due : when it looks again.
    """

    __slots__ = ("at", "begun", "clear", "debt", "due", "grain", "halted", "have", "hop", "left",
                 "line", "m", "most", "on", "pace", "place", "pool", "share", "supply",
                 "window")  # fmt: skip

    def __init__(self, m, hop, place, pool, grain, size):
        self.m, self.hop, self.place, self.pool, self.left = m, hop, place, pool, size
        self.supply, self.line = deque(), deque()
        self.share = self.pace = self.at = self.have = self.window = self.most = self.debt = 0.0
        self.due = -1.0
        self.grain = grain
        self.begun = self.clear = self.on = self.halted = False


class Worms:
    """All places and buffers of one simulation, and the messages that start at them.

    state : `network_model._Run`. push(event) : an event for later. read(m, now, idle) : what the
    sender does as message m starts, which may add to its cycles.
    """

    def __init__(
        self, state: Any, push: Callable[[tuple], Any], read: Callable[[int, float, Any], Any]
    ) -> None:
        t = state.traffic
        self._push, self._read = push, read
        self._paths, self._path_of = t.paths, t.path.tolist()
        self._pools = state.pools
        self._size = state.pool_size
        self._mixed = state.mixed
        self._latency, self._capacity = state.latency, state.room
        self._round_trip, self._receive = state.round_trip, state.receive
        self._credit = state.network.credit
        self._window = state.network.window
        self._wire, self._position = state.wire.tolist(), t.position.tolist()
        self.cycles = state.cycles.tolist()
        self.busy = [0.0] * t.n_places  # bytes that went, heads included
        self._room = list(state.room)
        self._speed = [state.rate[p] for p in self._path_of]  # where places are shared, less
        self._waiting = [deque() for _ in range(t.n_places)]  # (message, hop) whose head is there
        self._halted = [deque() for _ in range(t.n_places)]  # stages that could go on
        self._ready = [[] for _ in range(t.n_places)]  # (position, message) that may start there
        self._head_of = [0] * t.n_places  # position of the first message that has not started
        self._started = [bytearray(n + 1) for n in t.queue_lengths]
        # per link whose credits run out at a node: what each next share waits for, see `_spend`
        self._spent = [deque([(0, 0, c)]) for c in state.credits]
        self._short = [c > 0 for c in state.credits]
        self._free = [deque([(0.0, 0.0, size)]) for size in self._size]
        self._spare = list(self._size)  # bytes of `_free`
        self._grain = state.pool_grain
        self._sending = [[] for _ in self._size]  # stages
        self._again = [-1.0] * len(self._size)  # when who waits for credits looks next
        self._worms = {}  # message: its stages

    def leave(self, m: int) -> None:
        """Message m has started, or has nothing to send: its port's window moves on."""
        place = self._paths[self._path_of[m]][0]
        flags, i = self._started[place], self._head_of[place]
        flags[self._position[m]] = 1
        while flags[i]:
            i += 1
        self._head_of[place] = i

    def ready(self, m: int, now: float) -> None:
        place = self._paths[self._path_of[m]][0]
        heapq.heappush(self._ready[place], (self._position[m], m))
        self._serve(place, now, m)

    def head(self, m: int, hop: int, now: float) -> None:
        place = self._paths[self._path_of[m]][hop]
        self._waiting[place].append((m, hop))
        self._serve(place, now)

    def release(self, place: int, share: float, now: float) -> None:
        self._room[place] += share
        self._serve(place, now)

    def part(self, m: int, hop: int, now: float) -> None:
        """Stage `hop` of message m looks again, unless it is to at another time by now."""
        if m in self._worms and self._worms[m][hop].due == now:
            stage = self._worms[m][hop]
            stage.due = -1.0
            self._go(stage, now)

    def _serve(self, place, now, fresh=-1):
        """Start what can start: worms that go on first, then those on their way, then the node's
        own messages, of which `fresh` is ready since now.
        """
        room, halted = self._room, self._halted[place]
        while halted:
            if room[place] + 1e-9 < halted[0].share:
                return
            stage = halted.popleft()
            stage.halted = False
            room[place] -= stage.share
            stage.on = True
            self._go(stage, now)
        line, without, i = self._waiting[place], set(), 0
        while i < len(line):
            m, hop = line[i]
            if room[place] + 1e-9 < self._speed[m] / 2:
                return
            pool = self._pools[self._path_of[m]][hop]
            if pool in without or not self._affords(pool, m, place, now):
                if not self._mixed[place]:
                    return
                without.add(pool)
                i += 1
                continue
            del line[i]
            self._start(m, hop, now)
        mine = self._ready[place]
        while mine:
            at, m = mine[0]
            if room[place] + 1e-9 < self._speed[m] / 2:
                return
            if at >= self._head_of[place] + self._window:
                return
            path = self._path_of[m]
            alone = len(self._paths[path]) == 1
            if not alone and not self._affords(self._pools[path][0], m, place, now):
                return
            heapq.heappop(mine)
            self.leave(m)
            self._start(m, 0, now, m == fresh)

    def _affords(self, pool, m, place, now):
        """Whether there are credits for a cycle of message m."""
        line = self._free[pool]
        if self._spare[pool] + _LEAST < min(self._wire[m], self._speed[m], self._size[pool]):
            return False  # `_share_out` calls again
        if line[0][0] <= now:
            return True
        self._call(pool, place, line[0][0])
        return False

    def _call(self, pool, place, time):
        """Who waits for the credits of this buffer looks again."""
        if self._again[pool] != time:
            self._again[pool] = time
            self._push((time, RELEASE, -1, place, 0.0))

    def _start(self, m, hop, now, idle=False):
        """Message m takes place `hop` of its path; idle: which waited for it."""
        path, pools = self._paths[self._path_of[m]], self._pools[self._path_of[m]]
        place, cycles, speed = path[hop], self.cycles, self._speed
        if not hop:
            self._read(m, now, idle)
        if self._room[place] + 1e-9 < speed[m]:  # beside slower ones it has what they leave
            cycles[m] = math.ceil(cycles[m] * speed[m] / self._room[place])
            speed[m] = self._room[place]
        time, share, size = cycles[m], speed[m], self._wire[m]
        self._room[place] -= share
        self.busy[place] += time * share
        if len(path) == 1:
            if self._short[place]:
                time = self._spend(place, size, now, time)
            self._push((now + time, RELEASE, m, place, share))
            self._push((now + self._latency[place] + time + self._receive, DONE, m))
            return
        if not hop:
            stages = [_Stage(m, i, p, q, self._grain[q], size)
                      for i, (p, q) in enumerate(zip(path, pools, strict=True))]  # fmt: skip
            self._worms[m] = stages
            stages[0].supply.append((now, 0.0, size))
        stage = self._worms[m][hop]
        stage.begun = stage.on = True
        stage.at, stage.pace, stage.share = now, time / size, share
        pool, line = stage.pool, self._free[stage.pool]
        most = self._size[pool] * min(share / self._capacity[place], 1)
        stage.most = min(size, max(1, math.floor(most))) if most < size else size
        self._sending[pool].append(stage)
        self._settle(line, now)
        while line and stage.window < stage.most:
            since, lasts, part = line.popleft()
            take = min(part, stage.most - stage.window)
            if take < part:
                used = lasts * (take / part)
                line.appendleft((since + used, lasts - used, part - take))
                lasts = used
            self._spare[pool] -= take
            stage.window += take
            self._own(stage, since, lasts, take)
        self._look_ahead(m, hop, now)
        self._go(stage, now)

    def _spend(self, place, size, now, time):
        """Cycles that a message takes on a link into a node, `time` of them without waiting.

        `_spent` has (when the first credit comes back, cycles until the last, bytes), in order.
        """
        line, pace = self._spent[place], time / size
        self._settle(line, now)
        left, at = size, now
        while left > 0:
            since, lasts, share = line.popleft()
            part = min(left, share)
            if part < share:
                used = lasts * (part / share)
                line.appendleft((since + used, lasts - used, share - part))
                lasts = used
            begin = max(at, since)
            at = max(begin + part * pace, since + lasts)
            line.append((begin + self._round_trip[place], at - begin, part))
            left -= part
        return math.ceil(at - now - 1e-6)

    @staticmethod
    def _settle(line, now):
        """Credits that are back already, as one entry."""
        free = 0
        while line and line[0][0] + line[0][1] <= now:
            free += line.popleft()[2]
        if free:
            line.appendleft((now, 0, free))

    def _look_ahead(self, m, hop, now):
        """Stages of message m, from `hop` back, that nothing can hold up any more go on to their
        end: what follows is clear and takes bytes as fast, and credits suffice for a round trip.
        """
        stages = self._worms[m]
        while hop >= 0:
            stage = stages[hop]
            if not stage.begun or stage.clear or stage.left <= _LEAST:
                return
            if hop + 1 == len(stages):
                stage.clear = self._size[stage.pool] == math.inf
            else:
                ahead = stages[hop + 1]
                trip = (2 * self._latency[stage.place] + 1 + self._credit) / stage.pace
                enough = stage.window + _LEAST >= min(trip, self._wire[m])
                stage.clear = ahead.clear and enough and ahead.pace <= stage.pace * (1 + 1e-12)
            if not stage.clear:
                return
            self._go(stage, now)
            hop -= 1

    def _go(self, stage, now):
        """Let go what has come and may go now; call again when more may."""
        place = stage.place
        while stage.left > _LEAST and stage.supply and (stage.line or stage.debt):
            begin = max(stage.at, stage.supply[0][0])
            if not stage.debt:
                begin = max(begin, stage.line[0][0])
            if begin > now:
                if begin > stage.at and self._mixed[place]:
                    begin = self._give_way(stage, now) or begin
                self._look_at(stage, begin)
                return
            if not stage.on:
                if stage.halted:
                    return
                if self._room[place] + 1e-9 < stage.share:
                    stage.halted = True
                    self._halted[place].append(stage)
                    return
                self._room[place] -= stage.share
                stage.on = True
            self._pass(stage, now)
        if stage.left > _LEAST and self._mixed[place] and (end := self._give_way(stage, now)):
            self._look_at(stage, end)

    def _give_way(self, stage, now):
        """A worm that waits lets those of other virtual channels use the place, or says when:
        once what goes has gone.
        """
        if stage.at > now:
            return stage.at
        if stage.on:
            stage.on = False
            self._push((now, RELEASE, stage.m, stage.place, stage.share))
        return None

    def _look_at(self, stage, time):
        """A stage looks again at one time: the last that was told."""
        if stage.due != time:
            stage.due = time
            self._push((time, PART, stage.m, stage.hop))

    def _pass(self, stage, now):
        """A part goes: all that has come where the stage is clear, else what credits allow."""
        m, hop = stage.m, stage.hop
        since, lasts, part = stage.supply.popleft()
        end = since + lasts
        if stage.clear:
            stage.debt += part - self._draw(stage, part)
        else:
            first, until, credit = stage.line.popleft()
            if credit < part:
                used = lasts * (credit / part)
                stage.supply.appendleft((since + used, lasts - used, part - credit))
                end, part = since + used, credit
            elif part < credit:
                used = until * (part / credit)
                stage.line.appendleft((first + used, until - used, credit - part))
                until = used
            stage.have -= part
            end = max(end, first + until)
        end = max(end, now + part * stage.pace)
        fresh = stage.left == self._wire[m]
        stage.left -= part
        stage.at = end
        stages = self._worms[m]
        last = hop + 1 == len(stages)
        if stage.left <= _LEAST:
            self._end(stage, last, now)
        if last:
            if self._size[stage.pool] < math.inf:
                self._give(stage, now + self._round_trip[stage.place], end - now, part, now)
        else:
            ahead, comes = stages[hop + 1], now + self._latency[stage.place] + 1
            _insert(ahead.supply, comes, end - now, part, self._grain[stage.pool])
            if fresh:
                self._push((comes, HEAD, m, hop + 1))
            if ahead.begun:
                self._go(ahead, now)
        if hop:
            back = stages[hop - 1]
            since = now + self._latency[back.place] + self._credit
            self._give(back, since, end - now, part, now)
        if last and stage.left <= _LEAST:
            self._worms.pop(m, None)

    @staticmethod
    def _draw(stage, size):
        """Take so many credits of the stage's own, or as many as there are; bytes."""
        drawn = 0
        while stage.line and drawn < size:
            since, lasts, part = stage.line.popleft()
            take = min(part, size - drawn)
            if take < part:
                used = lasts * (take / part)
                stage.line.appendleft((since + used, lasts - used, part - take))
            drawn += take
        stage.have -= drawn
        return drawn

    def _end(self, stage, last, now):
        """The last byte of a stage goes; credits that it has left are the others'."""
        m = stage.m
        end = now + math.ceil(stage.at - now - 1e-6)
        self._push((end, RELEASE, m, stage.place, stage.share))
        if last:
            self._push((end + self._latency[stage.place] + self._receive, DONE, m))
        self._sending[stage.pool].remove(stage)
        while stage.line:
            self._share_out(stage.pool, stage.place, *stage.line.popleft(), now)

    def _give(self, stage, since, lasts, part, now):
        """Credits return to the link that spent them: for what its message has left, else for
        others.
        """
        if stage.debt:
            spent = min(stage.debt, part)
            stage.debt -= spent
            used = lasts * (spent / part)
            since, lasts, part = since + used, lasts - used, part - spent
        keep = min(part, max(stage.left - stage.have, 0))
        used = lasts * (keep / part) if part else 0
        if keep > 0:
            self._own(stage, since, used, keep)
        if part > keep:
            stage.window -= part - keep
            self._share_out(stage.pool, stage.place, since + used, lasts - used, part - keep, now)
        if keep > 0:
            self._go(stage, now)

    def _share_out(self, pool, place, since, lasts, part, now):
        """Credits go to messages under way that have less than their share, else wait."""
        for stage in self._sending[pool][:]:
            if part <= 0:
                return
            take = min(part, stage.most - stage.window, stage.left - stage.have)
            if take <= 0:
                continue
            used = lasts * (take / part)
            self._own(stage, since, used, take)
            stage.window += take
            since, lasts, part = since + used, lasts - used, part - take
            self._look_ahead(stage.m, stage.hop, now)
            self._go(stage, now)
        if part > 0:
            _insert(self._free[pool], since, lasts, part, self._grain[pool])
            self._spare[pool] += part
            if self._waiting[place] or self._ready[place]:
                self._call(pool, place, max(since, now))

    @staticmethod
    def _own(stage, since, lasts, part):
        _insert(stage.line, since, lasts, part, stage.grain)
        stage.have += part


def _insert(line, since, lasts, part, grain):
    """An entry in its place by time; what goes on evenly is one, as is what goes on at all where
    one of both has less than `grain` bytes, so that entries do not fall to dust.
    """
    at = len(line)
    while at and line[at - 1][0] > since:
        at -= 1
    if at:
        first, before, size = line[at - 1]
        end = first + before
        small = (size < grain or part < grain) and since <= end + 1
        if small or (since == end and before * part == lasts * size):
            line[at - 1] = first, max(end, since + lasts) - first, size + part
            return
    line.insert(at, (since, lasts, part))

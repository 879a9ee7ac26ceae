"""``gradnic fuzz``: bad frames in volume through an RTL card."""

import time

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(cls=q.Command, name="fuzz")
@option("--card", q.OneOf("inline", "offload", "host", "jobs", "rounds"), "inline", "Which card.")
@option("--frames", q.Whole(1, 10**10), 100_000, "Bad ones, at least; not of jobs and rounds.")
@option("--jobs n_jobs", q.Whole(1, 10**7), 200, "Of --card jobs.")
@option("--rounds n_rounds", q.Whole(1, 10**7), 50, "Of --card rounds.")
@option("--start", q.Whole(0, 10**7), 0, "Of jobs, the list to begin with; of rounds, the round.")
@option(
    "--lanes",
    q.LANES,
    help="Of the in-line card and those of jobs and rounds, 4 unless told; others' are fixed.",
)
@option("--seed", q.SEED, 1, "Of frames, order and stalls; of card, network and jobs.")
@cluster.runs_option
@cluster.options
@json_option
@needs(**SIMULATION)
def command(card, frames, n_jobs, n_rounds, start, lanes, seed, runs, json_file, **where):
    """Play bad and foreign frames through an RTL card, with good ones between them, or random jobs
    or rounds.

    In-line card: both directions at once, under random stalls: frames cut, too long, with wrong
    checksums, lengths, fields and coded units, marked bad, and those that are none of ours, each
    followed by a good one. Every frame that leaves and every counter is compared with the golden
    card.

    Offload card: 256 cards at once, as gates, each armed and in the middle of a round. Frames of
    the round have fields and bytes of their heads changed, their lengths, marks and claims, are
    cut, grown or oversize, half of them with a right IPv4 checksum; right ones come between them.
    Each must have the one fate that it has by the rules, the right ones too; all that is written
    and sent, and the counters, are compared, and the round must end as it does without them. Memory
    pauses in half of the rounds, as AXI4 lets it. The library takes minutes to build; frames are
    played in rounds of 65,025.

    Host: the way of host frames of a card with jobs, with memory, registers and a queue of jobs
    around it: requests of all kinds in and out of their regions, late, broken, cut and of other
    sessions, and frames of others, ARP and pings between them and against them; the host listens in
    3 of 10 cycles, and memory pauses in half of the rounds. All of memory, registers, jobs and
    counters are compared after each 2,000, nothing may be written outside of the regions, frames of
    others must have passed in order, those of the host without a cycle's wait, and ARP and pings
    been answered. Answers to requests are not compared here, as their number depends on time. Beats
    have 64 bytes.

    Jobs: the seed says what a card is built with. Lists of up to 24 jobs of any collective, codec,
    type, operation, class and length are posted on 2 to 6 such cards, over links that lose, double
    and reorder, beside frames of others; some a card must refuse, some nodes never post, some are
    aborted, and memory fails or is silent for a while. Every completion, every result, and every
    byte that no job may write is compared with golden cards. A list that differs is in the JSON,
    and is played again alone with --start.

    Rounds: the seed says how wide ports are, and whether cards have egress queues. Each round is an
    all-reduce on 2 to 6 offload cards without jobs, 32 lanes with --lanes 32, of any codec and
    length, over links with faults and queues; every replica is compared. --start as of jobs.

    Ends at the first difference, with exit status 1.

    \b
    Example:
      gradnic fuzz --frames 2000
      gradnic fuzz --card offload --frames 100000 --json build/fuzz.json
      gradnic fuzz --card host --frames 1000000 --json build/fuzz_host.json
      gradnic fuzz --card jobs --jobs 1000 --seed 7
      gradnic fuzz --card jobs --seed 7 --start 12 --jobs 1
      gradnic fuzz --card rounds --lanes 32 --rounds 20
      gradnic fuzz --frames 100000 --runs 20 --workers 2 --resume build/fuzz.jsonl
    """
    if card in ("offload", "host") and lanes:
        what = "the offload card is played with 4" if card == "offload" else "host frames have none"
        raise click.UsageError(
            f"--lanes is for the in-line card and those of jobs and rounds; {what}"
        )
    q.only_with(card not in ("jobs", "rounds"), f"frames, not for --card {card}", "frames")
    q.only_with(card == "jobs", "--card jobs", "n_jobs")
    q.only_with(card == "rounds", "--card rounds", "n_rounds")
    q.only_with(card in ("jobs", "rounds"), "--card jobs or rounds", "start")
    if card == "jobs" and lanes == 32:
        raise click.UsageError("--lanes must be 4, 8 or 16 with --card jobs, not 32")
    frames = {"jobs": n_jobs, "rounds": n_rounds}.get(card, frames)
    what = {"jobs": "jobs", "rounds": "rounds"}.get(card, "frames")
    screen = console(json_file)
    if runs > 1 or any(where.values()):
        work = [{"card": card, "frames": frames, "lanes": lanes, "seed": one}
                | ({"start": start} if start else {})
                for one in cluster.seeds_of(seed, runs)]  # fmt: skip
        results = [
            {name: value for name, value in result.items() if name not in ("shown", "line")}
            for result in cluster.spread(play, work, cluster.of_options(**where), name="campaigns")
        ]
        counts = {"inline": ("bad", "cycles"), "offload": ("frames", "right", "rounds"),
                  "host": ("frames", "foreign", "rounds"),
                  "jobs": ("jobs", "lists", "cycles"), "rounds": ("rounds", "cycles")
                  }[card]  # fmt: skip
        cluster.end(screen, results, counts, json_file)
        return
    with Progress() as progress:
        task = progress.add_task("bad frames" if what == "frames" else what, total=frames)
        result = play(card, frames, lanes, seed,
                      lambda done, _: progress.update(task, completed=done), start)  # fmt: skip
    if not result["ok"]:
        screen.print(f"circuit and model differ: {result['first']}")
        write_json(json_file, result)
        raise SystemExit(1)
    shown, line = result.pop("shown"), result.pop("line")
    for title, counts in shown.items():
        screen.print(table(title, ("", what), counts.items()))
    screen.print(line)
    write_json(json_file, result)


def play(card, frames, lanes, seed, show=None, start=0):
    """One campaign: its counts, ``ok card seed seconds shown line``; or ``ok`` False and ``first``,
    and of jobs and rounds the ``case`` that differs. frames : or jobs, or rounds.

    shown : {title: counts}, and line : the verdict, for the screen.
    """
    began, show = time.monotonic(), show or (lambda done, total: None)
    try:
        if card == "inline":
            result = _inline(frames, lanes or 4, seed, show)
        elif card in ("jobs", "rounds"):
            result = (_jobs if card == "jobs" else _rounds)(frames, lanes or 4, seed, start, show)
        else:
            result = (_offload if card == "offload" else _host)(frames, seed, show)
    except AssertionError as difference:
        return {"ok": False, "seed": seed, "first": str(difference), **vars(difference)}
    seconds = round(time.monotonic() - began, 1)
    return result | {"ok": True, "card": card, "seed": seed, "seconds": seconds}


def _inline(frames, lanes, seed, show):
    from gradnic.sim.inline import fuzz

    result = fuzz.fuzz(frames, model=fuzz.build(lanes), seed=seed, progress=show)
    line = (
        f"{result['bad']:,} bad and foreign frames, a good one behind each: "
        f"{result['cycles']:,} cycles, RTL and model agree"
    )
    return result | {"lanes": lanes, "shown": {"bad frames": result["classes"]}, "line": line}


def _jobs(n_jobs, lanes, seed, start, show):
    from gradnic.sim.offload import job_fuzz

    result = job_fuzz.fuzz(n_jobs, seed=seed, lanes=lanes, start=start, progress=show)
    line = (
        f"{result['jobs']:,} jobs in {result['lists']:,} lists, {result['cycles']:,} cycles: RTL "
        "and golden cards agree"
    )
    return result | {"lanes": lanes, "shown": {"how jobs ended": result["statuses"]}, "line": line}


def _rounds(n_rounds, lanes, seed, start, show):
    from gradnic.sim.offload import round_fuzz

    result = round_fuzz.fuzz(n_rounds, seed=seed, lanes=lanes, start=start, progress=show)
    line = (
        f"{result['rounds']:,} rounds, {result['cycles']:,} cycles, {result['frames_dropped']:,} "
        f"frames dropped by queues, {result['packets_given_up']:,} packets given up: RTL and "
        "golden sums agree"
    )
    return result | {"lanes": lanes, "shown": {"codecs": result["codecs"]}, "line": line}


def _offload(frames, seed, show):
    from gradnic.sim.offload import fuzz as offload_fuzz

    result = offload_fuzz.fuzz(frames, seed=seed, progress=show)
    line = (
        f"{result['frames']:,} broken frames and {result['right']:,} right ones between them: each "
        f"as it must, and {result['rounds']} times 255 rounds complete"
    )
    shown = {"broken frames": result["kinds"], "what became of them": result["reasons"]}
    return result | {"shown": shown, "line": line}


def _host(frames, seed, show):
    from gradnic.sim.offload import host_fuzz

    result = host_fuzz.fuzz(frames, seed=seed, progress=show)
    line = (
        f"{result['frames']:,} host frames and {result['foreign']:,} others between them: nothing "
        "outside of the regions, no frame waited, circuit and model agree"
    )
    return result | {
        "shown": {"what became of frames to the card": result["reasons"]},
        "line": line,
    }

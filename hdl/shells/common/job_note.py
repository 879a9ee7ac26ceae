"""What the notes of all shells say of a card that takes jobs.

Plumbing: no golden model of its own.
"""

OPENS = """\
A host opens the card so, and loads schedule tables under numbers from 0 to {last_table}:

```python
from gradnic.host import JobDriver

card = JobDriver(read, write, base={base})  # the card tells its sizes
card.allow_memory(0, address, n_bytes)  # where gradients and results may lie, whole beats
card.set_landing([{places}], n_elems)  # of the largest tensor
```

`gradnic.host.bring_up.bring_up` writes these settings and tables from addresses of all nodes;
`card.layout` packs rows of a table. Sources, results{residuals}, landing areas{and_scratch} begin
at multiples of 64 bytes. Gradients and results lie within one of two regions, `source0` and
`source1`, whole beats each; a job on anything else is refused. {each} a landing area of its own:
{n_ranks} ranks x the largest tensor.{thc}"""

THC = """

Norms, indices and sums of THC go to scratch in the memory of gradients, outside of both regions:
`card.scratch_bytes(n_elems, leaves)` bytes for each context. First of all `set_thc`, then
`set_scratch`, then tables.{residuals}"""

RESIDUALS = """ Residuals, two halves of a tensor each, lie within `source0` or `source1`."""

FRAMES = """

By frames of its host, no register bus is needed: on the network device of the card's port 0

```sh
ip addr add 198.51.100.1/31 dev DEV && ip link set DEV up
```

```python
from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp

card = FramedCard(FrameHost(*udp("198.51.100.0")))  # the card tells its sizes
```

`bring_up` works as above; `card.link.store(address, octets)` and `card.link.load(address, n_bytes)`
reach the memory of gradients, not landing areas. Addresses of registers are those of the card's
map, from 0 on, whatever `base` is; registers of the shell's wrapper beside them are reached over
the bus alone. Both ways may be used at a time, but while `host.events` is 1, which `FramedCard`
sets, completions go by frames: `job.take` does nothing."""


def opens(parameters, base: str = "0x0") -> str:
    """How a `gradnic.interface.params.Jobs` card at `base` is opened, and where its memory is."""
    residuals = RESIDUALS if parameters.feedback else ""
    n_engines = parameters.n_engines or parameters.n_active
    text = OPENS.format(
        last_table=parameters.n_tables - 1,
        base=base,
        places=", ".join(f"address{k}" for k in range(n_engines)),
        each=f"Each of the {n_engines} engines has" if n_engines > 1 else "The engine has",
        residuals=", residuals" if parameters.feedback else "",
        and_scratch=" and scratch" if parameters.thc else "",
        thc=THC.format(residuals=residuals) if parameters.thc else "",
        n_ranks=parameters.n_ranks,
    )
    return text + (FRAMES if parameters.host else "")

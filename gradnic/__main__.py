"""The ``gradnic`` command, also as ``python -m gradnic``: told to end, it does so from the first
moment on as it does later, not in the middle of an import.
"""

import sys

from gradnic import processes


def main():
    """Handle signals first, since the command line takes most of a second to import."""
    processes.exit_on_signals()
    try:
        from gradnic import cli
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()

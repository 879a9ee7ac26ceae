"""``python -m gradnic`` is the ``gradnic`` command."""

from gradnic.cli import main

main()

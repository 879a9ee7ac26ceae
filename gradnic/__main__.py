"""``python -m gradnic`` is the ``gradnic`` command."""

from .cli import main

main()

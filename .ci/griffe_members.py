"""Reads the ``Members`` section of a component's docstring as the attributes that its ports are."""

import re

from griffe import Extension


class Members(Extension):
    """An extension of griffe, which collects the API pages."""

    def on_object(self, *, obj, **_):
        """Rename the section of one docstring."""
        if obj.docstring:
            text = re.sub(
                r"^Members\n-+$", "Attributes\n----------", obj.docstring.value, flags=re.M
            )
            obj.docstring.value = text

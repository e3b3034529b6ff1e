"""The static picture for pages without a kernel or a widget: a second output, hidden by the live widget.

JupyterLab and Notebook 7 prefer the widget's MIME type to all others of an output, and show an error if its model is
gone. So the picture is an output of its own: HTML with the SVG in an ``<img>`` (it needs no trust), ``image/svg+xml``
for GitHub and nbconvert, and text for other programs. The live widget's script hides it.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

Bundle = dict[str, str]
#: Hides a widget's output (in place of the widget: "model not found") above its picture, unless the widget is live.
_LOST = (
    "<style>.jp-OutputArea-child:not(:has(.syno-shared)):has(+ .jp-OutputArea-child "
    '[data-syno-static="{}"]) {{ display: none; }}</style>'
)


def static_bundle(static_id: str, svg: str, description: str) -> Bundle:
    """Return the MIME bundle of a picture that the widget with this ``static_id`` hides.

    Args:
        static_id: the widget's trait of that name.
        svg: the picture.
        description: the picture in words.
    """
    image = base64.b64encode(svg.encode()).decode()
    html = (
        f'<div class="syno-static" data-syno-static="{escape(static_id)}">'
        f'<img style="max-width:100%" alt="{escape(description)}" src="data:image/svg+xml;base64,{image}"></div>'
    )
    return {"text/html": html, "image/svg+xml": svg, "text/plain": description}


class StaticOutput:
    """The output beside one widget, updated while a notebook front end listens."""

    def __init__(self, static_id: str) -> None:
        self.static_id = static_id
        self._handles: list[Any] = []

    def show(self, svg: str, description: str) -> None:
        """Add the picture to the output of the running cell."""
        self.show_bundle(static_bundle(self.static_id, svg, description))

    def update(self, svg: str, description: str) -> None:
        """Replace the picture in all its outputs, so that a saved notebook has the latest picture."""
        self.update_bundle(static_bundle(self.static_id, svg, description))

    def show_bundle(self, bundle: Bundle) -> None:
        """Add HTML instead of a picture; the HTML contains the marker ``static_id``."""
        from IPython.display import display

        handle = display(self._with_style(bundle), raw=True, display_id=True)
        if handle is not None:
            self._handles.append(handle)

    def update_bundle(self, bundle: Bundle) -> None:
        """Replace the bundle in all its outputs."""
        for handle in self._handles:
            handle.update(self._with_style(bundle), raw=True)

    def _with_style(self, bundle: Bundle) -> Bundle:
        return {**bundle, "text/html": _LOST.format(escape(self.static_id)) + bundle.get("text/html", "")}

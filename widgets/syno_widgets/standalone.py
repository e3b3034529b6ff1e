"""A widget as a page of its own: its traits as data and its script; the page fetches nothing.

The page has no kernel. The widget's script gets a model that stores traits and sends nothing; the trait ``live`` is
false. The data are deflated, because pictures and lists repeat themselves. If scripts are off or the data cannot be
read, the page shows a message above its static part; otherwise the widget's script hides that part.
"""

from __future__ import annotations

import base64
import json
import zlib
from html import escape
from typing import Any

_MODEL = """
/** The traits, from deflated JSON in base64 (standalone.py). */
async function unpackedState() {
  const packed = atob(document.getElementById("state").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** A model that keeps what is set and sends nothing. */
function modelOf(state) {
  const heard = new Map();
  return {
    get: (name) => state[name],
    set: (name, value) => {
      if (state[name] === value) return;
      state[name] = value;
      for (const draw of heard.get(`change:${name}`) ?? []) draw();
    },
    save_changes: () => {},
    send: () => {},
    on: (name, draw) => heard.set(name, [...(heard.get(name) ?? []), draw]),
    off: (name, draw) => heard.set(name, (heard.get(name) ?? []).filter((one) => one !== draw)),
  };
}

const el = document.getElementById("view");
try {
  render({ model: modelOf(await unpackedState()), el });
} catch (error) {
  const words = document.createElement("p");
  words.setAttribute("role", "alert");
  const why = `This page is damaged, or the browser is too old for it (${error.message}).`;
  words.textContent = `${why} Here is its last picture:`;
  el.replaceChildren(words);
}
"""
_UNSCRIPTED = "This page needs JavaScript, which is off or blocked in this browser. Here is its last picture:"
# Only the page's own script and style, and embedded pictures.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page(title: str, state: dict[str, Any], script: str, style: str, static: str) -> str:
    """Return the HTML of a page with one widget.

    Args:
        title: any text.
        state: the widget's traits as JSON data, with ``live`` false.
        script: files that define ``render``, without exports.
        style: CSS.
        static: escaped HTML for a page without scripts; the widget's script hides it.
    """
    if "</script" in script.lower() or "</style" in style.lower():
        raise ValueError("expected a script and a style without end tags, found one")
    # Base64 has no "<": no text in the data can end its element.
    data = base64.b64encode(zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 9)).decode()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\nbody {{ margin: 12px; }}\n{style}\n</style>\n</head>\n<body>\n"
        f'<main>\n<div id="view"></div>\n<noscript><p>{_UNSCRIPTED}</p></noscript>\n{static}\n</main>\n'
        f'<script type="text/plain" id="state">{data}</script>\n'
        f'<script type="module">\n{script}\n{_MODEL}</script>\n</body>\n</html>\n'
    )

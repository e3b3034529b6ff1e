"""A widget as a page of its own: its traits as data and its script; the page fetches nothing.

The page has no kernel. The widget's script gets a model that keeps what is set and sends nothing; it knows by the trait
``live`` that there is nobody to answer. Without scripts the page shows what is given as its static part.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

_MODEL = """
const state = JSON.parse(document.getElementById("state").textContent);
const heard = new Map();
const model = {
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
render({ model, el: document.getElementById("view") });
"""
# Nothing from anywhere: the page's own script and style, and pictures that it holds itself.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page(title: str, state: dict[str, Any], script: str, style: str, static: str) -> str:
    """HTML of a page with one widget.

    Args:
        title: any text.
        state: the widget's traits, as JSON can hold them, with ``live`` false.
        script: files that define ``render``, without exports.
        style: CSS.
        static: HTML for a page without scripts; it must have been escaped.
    """
    if "</script" in script.lower() or "</style" in style.lower():
        raise ValueError("a widget's files end the element that they stand in")
    # "<" is written as an escape, so that no text in the data can end the element that it stands in.
    data = json.dumps(state, ensure_ascii=True).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\nbody {{ margin: 12px; }}\n{style}\n</style>\n</head>\n<body>\n"
        f'<main id="view"></main>\n<noscript>{static}</noscript>\n'
        f'<script type="application/json" id="state">{data}</script>\n'
        f'<script type="module">\n{script}\n{_MODEL}</script>\n</body>\n</html>\n'
    )

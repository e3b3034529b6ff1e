"""How Sphinx makes the site of these pages (``make docs``), to be read from the file system without a network.

Its source is the whole repository, so that one link is right in the site and where the files are read as they are.
"""

from __future__ import annotations

import builtins
import sys
from functools import cache
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import get_node_source, make_refnode
from sphinx.writers.html5 import HTML5Translator

from syno_lab import __version__
from syno_lab.drawing.style import ACCENT, DARK_ACCENT

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from references import definition, full_name, modules

#: By page, the groups of pages below it in the navigation. A page that stands nowhere fails the build.
CONTENTS = {
    "README": {
        "Guide": [
            "docs/tasks",
            "docs/building-by-hand",
            "docs/looking-at-an-operator",
            "docs/gallery",
            "docs/operator-forms",
            "docs/to-paper",
            "docs/sampling",
            "docs/searching",
            "docs/bring-your-model",
            "docs/networks-tried",
            "docs/own-primitive",
            "docs/own-rule",
            "docs/own-reward",
            "docs/training",
            "docs/tuning-and-boards",
            "docs/jobs-and-workers",
            "docs/reproducing",
            "docs/jupyter",
            "docs/reading-results",
            "docs/commands",
            "Files and trust <docs/security>",
        ],
        "Systems": ["docs/systems", "docs/canvas", "docs/alpha", "docs/primitives"],
        "Course": ["notebooks/README"],
        "Reference": ["docs/api/index", "docs/glossary", "Features <docs/features>", "benchmarks/README"],
        "For contributors": ["CONTRIBUTING", "docs/first-change", "docs/architecture", "docs/design", "CHANGELOG"],
    },
    "notebooks/README": {"": ["*", "course/*"]},
    "docs/api/index": {"": ["*"]},
}

project = html_title = "Syno Lab"
author = project_copyright = ""
release = __version__
root_doc = "README"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "benchmarks/README", "docs/**")]
include_patterns += ["notebooks/**.md", "notebooks/**.ipynb"]
# Folders that need not be walked through.
exclude_patterns = [".*", "build", "syno_lab", "widgets", "tests", "lab", "demo-output", "**/.ipynb_checkpoints"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"
# Outputs as they were saved: of a widget its picture, and no script of it from a content network.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes stand in the docstring of their class, and once
# `State` is the name of a class in several packages; Sphinx links the first.
suppress_warnings = ["ref.python"]
# A cross reference to a name that does not exist fails the build; `find_definition` knows the names.
nitpicky = True

html_theme = "furo"
html_theme_options = {
    f"{mode}_css_variables": {"color-brand-primary": accent, "color-brand-content": accent}
    for mode, accent in (("light", ACCENT), ("dark", DARK_ACCENT))
}
pygments_dark_style = "github-dark"
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_extra_path = ["site/index.html"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
# Results would be read with `fetch`, which a browser refuses to a page from the file system.
html_show_search_summary = False


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the navigation to a page that is read elsewhere too, where it would stand as text."""
    for caption, pages in CONTENTS.get(page, {}).items():
        entries = "\n".join([":hidden:", ":glob:", *([f":caption: {caption}"] if caption else []), "", *pages])
        source[0] += f"\n\n```{{toctree}}\n{entries}\n```\n"


def find_definition(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> object:
    """Find the name of a cross reference as Python does, where Sphinx does not find it.

    A value may be described under another name than the reference uses. A name that exists and that no page describes
    stays text, and so does an annotation. For a name that does not exist the result is None, and Sphinx warns.
    """
    if node["refdomain"] != "py":
        return None
    target = node["reftarget"]
    if not isinstance(content, nodes.literal) or hasattr(builtins, target):
        return content
    described = (get_node_source(node) or "").rpartition(":docstring of ")[2]
    source = f"{definition(described) or described}."
    module = max((name for name in modules() if source.startswith(f"{name}.")), key=len, default="syno_lab")
    class_name = (node.get("py:class") or "").rpartition(".")[2]
    name = full_name(module, class_name, node["reftype"], f".{target}" if node.get("refspecific") else target)
    if name is None:
        return None
    page, anchor = described_names(env).get(definition(name) or "", ("", ""))
    return make_refnode(app.builder, node["refdoc"], page, anchor, content) if page else content


@cache
def described_names(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Return the page and the anchor of each value that the reference describes, by where the value is defined."""
    entries = env.get_domain("py").get_objects()
    return {home: (page, anchor) for name, _, _, page, anchor, _ in entries if (home := definition(name))}


def write_formula(writer: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """MathML, which browsers draw by themselves: no script and no fonts need to be shipped."""
    text = node.astext().replace("{aligned}", "{split}")  # the same under the name that latex2mathml knows
    if isinstance(node, nodes.math):
        writer.body.append(convert(text))
    else:
        writer.body.append(f'<div class="formula">{convert(text, display="block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("source-read", add_contents)
    app.connect("missing-reference", find_definition)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))

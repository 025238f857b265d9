"""Sphinx configuration: `make docs` builds the pages under docs/ into build/site, and a warning is an error.

In the site `test:torn-tail`, the id of a test, becomes a link to its row in tests.md. The table of that page is
generated here from the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import seeklog

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import ids  # under tests/

project = "seeklog"
author = "the seeklog authors"
project_copyright = "the seeklog authors, Apache-2.0"
version = release = seeklog.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["README.md"]

html_theme = "furo"
html_title = "seeklog"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
default_role = "literal"  # a docstring's backticks

# The sidebar omits formats and decisions: the tables of their first pages link to them.
suppress_warnings = ["toc.not_included"]


class TestsById(SphinxDirective):
    """A directive: the table of all tests that have an id."""

    def run(self) -> list[nodes.Node]:
        body = nodes.tbody("", *(row_of(test) for _, test in sorted(ids.named_tests().items())))
        head = nodes.thead("", nodes.row("", *(entry_of(nodes.Text(title)) for title in ("id", "test", "file"))))
        widths = [nodes.colspec(colwidth=width) for width in (1, 2, 2)]
        return [nodes.table("", nodes.tgroup("", *widths, head, body, cols=len(widths)))]


def row_of(test: ids.NamedTest) -> nodes.row:
    name = nodes.literal(text=test.id)
    name["ids"] = [test.id]
    return nodes.row("", entry_of(name), entry_of(nodes.Text(test.sentence)), entry_of(nodes.literal(text=test.path)))


def entry_of(content: nodes.Node) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", "", content))


def link_tests(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link every `test:…` of a page to the row of that test in tests.md."""
    for literal in list(doctree.findall(nodes.literal)):
        test = ids.named_tests().get(literal.astext().removeprefix("test:"))
        if test is not None and literal.astext().startswith("test:"):
            target = f"{app.builder.get_relative_uri(page, 'tests')}#{test.id}"
            name = nodes.literal(text=test.id)
            literal.replace_self(nodes.reference("", "", name, refuri=target, reftitle=test.sentence, internal=True))


def setup(app: Sphinx) -> None:
    app.add_directive("tests-by-id", TestsById)
    app.connect("env-get-outdated", lambda *_: ["tests"])  # the tests may change while the page does not
    app.connect("doctree-resolved", link_tests)

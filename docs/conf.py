"""How the pages under docs/ become a site: `make docs` builds it into build/site, and a warning is an error."""

from __future__ import annotations

import seeklog

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

# Formats and decisions are reached through the tables of their first pages, not through the sidebar.
suppress_warnings = ["toc.not_included"]

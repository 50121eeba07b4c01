"""The documentation site: how Sphinx makes it from the Markdown pages.

Takes a folder that tools/site.sh has filled: README.md as index.md, everything else where it is in the
repository, so that a link between two files is the same on a forge and on the site. Gives the order of the
pages. A link or an anchor that leads nowhere, and a page without a place in the order, is a warning, which
ends the build. The pages must load nothing from other hosts: tools/site/check.py looks at what was built.
"""

from sphinx.application import Sphinx

#: In the order in which a user needs them.
NAVIGATION = {
    "First steps": [
        "docs/guide/getting-started",
        "docs/guide/examples",
        "docs/guide/django",
        "docs/guide/deploy",
        "docs/guide/kubernetes",
        "docs/guide/automatic-certificates",
        "docs/guide/tls",
        "docs/guide/wsgi",
        "docs/guide/asgi",
        "docs/guide/websocket",
        "docs/guide/routes",
        "docs/guide/proxy",
    ],
    "Logs and reports": [
        "docs/guide/logs-and-phases",
        "docs/guide/logs",
        "docs/guide/metrics",
        "docs/guide/traces",
        "docs/guide/top",
        "docs/guide/live-page",
        "docs/guide/report",
        "docs/guide/whatif",
        "docs/guide/tune",
    ],
    "Pools and limits": ["docs/guide/pools", "docs/control", "docs/guide/limits-and-timeouts"],
    "Proxies": ["docs/balancing"],
    "Autoscaling": ["docs/autoscaling"],
    "Processes": ["docs/guide/processes", "docs/guide/preload", "docs/guide/hooks"],
    "Files and responses": [
        "docs/guide/static-files",
        "docs/guide/compression",
        "docs/guide/redirects-and-pages",
    ],
    "Load tests": ["docs/guide/bench"],
    "Help": ["docs/guide/troubleshooting", "docs/guide/glossary"],
    "Reference": [
        "docs/reference/options",
        "docs/reference/access-log",
        "docs/reference/metrics",
        "docs/reference/bench",
        "docs/reference/bench-json",
    ],
    "Other servers": ["docs/compared", "docs/guide/coming-from-gunicorn", "docs/performance"],
    "About the project": ["CHANGELOG", "ARCHITECTURE", "lab/README"],
}

project = "Milepost"
html_title = "Milepost"
extensions = ["myst_parser"]
nitpicky = True

# Anchors of headings as forges make them.
myst_heading_anchors = 4
# A page may have one level of headings below another one that is missing.
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# No address of the site is known to the sources; every link in it is relative.
html_baseurl = ""


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """The front page gets the order of all pages, which nobody sees in the file on a forge."""
    if name != "index":
        return
    for caption, pages in NAVIGATION.items():
        entries = "\n".join(f"/{page}" for page in pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)

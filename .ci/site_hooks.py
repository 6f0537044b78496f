"""What mkdocs does not do by itself: documents that lie outside of docs/ are pages, too, and notebooks with what is
stored of their outputs; links work as they do in the repository, headings have the anchors that check_links.py knows,
and every page has a place in the navigation."""

import json
import logging
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_links  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "models/README.md", "packaging/README.md")
HOME = {"README.md": "index.md"}  # the README is a page of the repository only
# Code comes first: what looks like a link in it is none.
LINK = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1[^\n]*$|`[^`\n]*`|"
                  r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
log = logging.getLogger("mkdocs.site_hooks")


def on_config(config):
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda heading, separator: check_links.anchor(heading)
    return config


def fence(content, language=""):
    return f"~~~{language}\n{content.rstrip()}\n~~~\n"


def notebook_page(path):
    """The Markdown of a notebook with what is stored of its outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else fence(source, "python"))
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:
                parts.append("<div>" + re.sub(r"\n\s*", " ", "".join(data["text/html"])) + "</div>")
            elif "image/png" in data:
                parts.append(f'<img alt="plot" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">')
            else:
                parts.append(fence("".join(data["text/plain"])))
    return "\n\n".join(parts) + "\n"


def on_files(files, config):
    for name in OUTSIDE:
        files.append(File(name, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    pages = pathlib.Path(config["site_dir"]).parent / "site-pages"
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        page = pages / "notebooks" / f"{path.stem}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(notebook_page(path), encoding="utf-8")
        files.remove(files.get_file_from_path(f"notebooks/{path.name}"))
        files.append(File(f"notebooks/{page.name}", str(pages), config["site_dir"], config["use_directory_urls"]))
    files.remove(files.get_file_from_path("Doxyfile"))
    return files


def on_nav(nav, config, files):
    for file in files.documentation_pages():
        if file.page not in nav.pages:
            log.warning("%s has no place in the navigation of mkdocs.yml", file.src_path)
    return nav


def on_page_markdown(markdown, page, config, files):
    """Links as the site has them; one that leads to a file of the source is its text alone."""
    own = page.file.src_path if page.file.src_path in OUTSIDE else f"docs/{page.file.src_path}"

    def moved(match):
        target, _, fragment = (match["target"] or "").partition("#")
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
        place = re.sub(r"\.ipynb$", ".md", HOME.get(path, path.removeprefix("docs/")))
        if files.get_file_from_path(place) is None:
            return match["text"] if (ROOT / path).exists() else match[0]
        place = posixpath.relpath(place, posixpath.dirname(page.file.src_path) or ".")
        return f"{match['image']}[{match['text']}]({place}{f'#{fragment}' if fragment and path not in HOME else ''})"

    return LINK.sub(moved, markdown)

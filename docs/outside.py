"""MkDocs hook: the site has pages from outside docs/ too, links that work as in the repository, and the docstrings of pictures."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from roofline.plot import PICTURES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("CONTRIBUTING.md", "notebooks/*.ipynb", "benchmarks/results/*/*/*.md", "benchmarks/results/*/*/*.png")


@event_priority(100)  # before plugins that look for notebooks
def on_files(files: Any, config: Any) -> None:
    for path in sorted(found for pattern in PAGES for found in ROOT.glob(pattern)):
        files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = Path(page.file.abs_src_path)
    markdown = markdown.replace("<!-- pictures -->", "\n\n".join(f"::: roofline.plot.pictures.{name}.{name}" for name in PICTURES))

    def on_the_site(link: re.Match[str]) -> str:
        target = (source.parent / link[2]).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        path = target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT).as_posix()
        return link[1] + posixpath.relpath(path, posixpath.dirname(page.file.src_uri) or ".")

    return re.sub(r"(\]\()(?![a-z]+:|#)([^)#\s]+)", on_the_site, markdown)

"""Adds pages from outside `docs` to the web site: a hook of MkDocs.

`DEVIATIONS.md` and `CHANGELOG.md`, beside the README, become pages. Links between them and the
documentation lead to pages of the site. On a code host the same links lead to files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# Pages of the site, by the name of the file in the checkout.
PAGES = {"DEVIATIONS.md": "deviations.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:)([^)#]*\.(?:md|rs|py|json|toml|h))(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        text = links((ROOT / name).read_text(), PurePosixPath(name), PurePosixPath(page))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links of a page of `docs` to a file beside the README."""
    here = PurePosixPath(page.file.src_uri)
    if str(here) in PAGES.values():
        return markdown
    return links(markdown, PurePosixPath("docs") / here, here)


def links(text: str, here: PurePosixPath, page: PurePosixPath) -> str:
    """The text of the file `here` of the checkout as that of `page` of the site.

    A link to a file that the site does not have becomes its text and the file's name.
    """

    def turn(found: re.Match[str]) -> str:
        target = posixpath.normpath(here.parent / found[2])
        on_site = PAGES.get(target) or (
            target.removeprefix("docs/") if target.startswith("docs/") else None
        )
        if on_site is None:
            named = found[1].strip("`") in {target, PurePosixPath(target).name}
            return f"`{target}`" if named else f"{found[1]} (`{target}`)"
        start = str(page.parent)
        return f"[{found[1]}]({posixpath.relpath(on_site, start)}{found[3] or ''})"

    return LINK.sub(turn, text)

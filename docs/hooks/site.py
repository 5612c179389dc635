"""Hooks of MkDocs: pages from outside docs/, links to them, and the API with its docstrings."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    **{
        path.relative_to(ROOT).as_posix(): f"protocols/{path.parent.name}.md"
        for path in sorted(ROOT.glob("src/unisono/protocols/*/README.md"))
    },
}
"""Pages of the site that lie elsewhere in the tree, by their path there."""
LINK: Final = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    # Not at import: MkDocs restores the path after it has loaded a hook.
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, target in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        made = File.generated(config, target, content=relinked(text, ROOT / source, target))
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    name = page.file.src_uri
    if name == "API.md":
        return _with_docstrings()
    if name in OUTSIDE.values():
        return markdown
    return relinked(markdown, ROOT / "docs" / name, name)


def relinked(text: str, source: Path, target: str) -> str:
    """Links as the page needs them where it stands on the site; to what has no page, none."""
    depth = target.count("/")

    def there(match: re.Match[str]) -> str:
        shown, link, fragment = match[1], match[2], match[3] or ""
        if "://" in link:
            return match[0]
        path = (source.parent / link).resolve().relative_to(ROOT).as_posix()
        assert (ROOT / path).exists(), f"{source} links to {path}, which does not exist"
        found = OUTSIDE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return f"[{shown}]({'../' * depth}{found}{fragment})" if found else shown

    return LINK.sub(there, text)


def _with_docstrings() -> str:
    """The API page with a link from each name to its documentation below."""
    api = import_module("docs.hooks.api")
    parts = [api.HEAD.partition(" The site")[0] + "\n"]
    shown: set[str] = set()
    for name, about in api.MODULES.items():
        module = import_module(name)
        homes = {each: _home(getattr(module, each)) for each in api.public_names(module)}
        rows = [
            f"| [`{each}`][{homes[each]}] | {text} |" if homes[each] else f"| `{each}` | {text} |"
            for each, text in api.entries(module)
            if each in homes
        ]
        parts.append(f"## {name}\n\n{about}\n\n| name | what |\n|---|---|")
        parts += [*rows, ""]
        parts += [f"::: {home}\n" for home in homes.values() if home and home not in shown]
        shown.update(homes.values())
    return "\n".join(parts)


def _home(value: Any) -> str:
    """Where a class or function is defined; nothing for a constant."""
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else ""

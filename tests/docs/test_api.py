"""The API reference lists every public name. `pytest --rewrite` writes it."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from docs.hooks import api
from tests.documents import DOCS, section


@pytest.fixture(autouse=True, scope="module")
def written(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        (DOCS / "API.md").write_text(api.page(), encoding="utf-8", newline="\n")


@pytest.mark.parametrize("module", api.MODULES)
def test_every_public_name_is_in_the_reference_and_no_other(module: str) -> None:
    listed = set(re.findall(r"^\| `([\w.]+)` \|", section("API", module), re.MULTILINE))
    public = {name for name, _ in api.entries(import_module(module))}
    assert listed == public, "run pytest tests/docs/test_api.py --rewrite"


def test_the_reference_covers_what_unisono_exports() -> None:
    import unisono

    assert api.public_names(unisono) and set(unisono.__all__) == set(api.public_names(unisono))


@pytest.mark.parametrize("module", api.MODULES)
def test_every_public_class_and_function_has_a_docstring(module: str) -> None:
    found = import_module(module)
    bare = [
        name
        for name in api.public_names(found)
        if callable(getattr(found, name)) and not api.sentence_of(getattr(found, name))
    ]
    assert not bare

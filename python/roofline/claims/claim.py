"""Claims as data: one TOML file per text, every key checked as it is read."""

from __future__ import annotations

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import Error
from ..reading import SCHEMA_VERSION

SUFFIX = ".toml"
# Whose words a claim is.
SAYS = {"printed": "the text says it", "follows": "its formulas or code give it, worked out or run; the text does not print it"}
FILES = ("transformers", "article", "gpu", "gb200", "notebook")  # in the order they are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a text, paraphrased but for quotations. says: a key of `SAYS`. why: the right value, and why.

    call: a Python expression of this package's public names that shows it, after `import roofline`. gives: what the call gives, to
    four digits: a number, text, or a list of these. The tests execute every call.
    """

    id: str
    document: str
    claim: str
    says: str
    holds: bool
    why: str
    call: str
    gives: Any

    @property
    def line(self) -> str:
        """The call as a line of its own, ready to be pasted."""
        return f"import roofline; print({self.call})"

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "does not hold"

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `line` is derived."""
        return {**dataclasses.asdict(self), "line": self.line}


@cache
def _documents() -> dict[str, tuple[str, tuple[Claim, ...]]]:
    """What a text is and its claims, by title."""
    found = {}
    for name in FILES:
        text = (importlib.resources.files(__package__) / f"{name}{SUFFIX}").read_text(encoding="utf-8")
        data = tomllib.loads(text)
        claims = tuple(Claim(document=data["document"], **item) for item in data["claims"])
        found[data["document"]] = (data["about"], claims)
    return found


def documents() -> dict[str, str]:
    """Titles of the texts, each with what it is."""
    return {title: about for title, (about, _) in _documents().items()}


def _all() -> Iterator[Claim]:
    for _, claims in _documents().values():
        yield from claims


def list_claims(document: str | None = None) -> tuple[Claim, ...]:
    """All claims, or those of the text whose title contains `document`, whatever its case. Raises Error where there is none."""
    wanted = (document or "").casefold()
    found = tuple(claim for claim in _all() if wanted in claim.document.casefold())
    if not found:
        raise Error(f"no text has {document!r:.80} in its title; there are {'; '.join(documents())}")
    return found


def find_claim(id: str) -> Claim:
    """The claim of this id. Raises Error for an unknown one."""
    for claim in _all():
        if claim.id == id:
            return claim
    raise Error(f"there is no claim {id!r:.80}; `roofline claims` lists them")


def to_dict(claims: tuple[Claim, ...]) -> dict[str, Any]:
    """JSON form of several; see schemas/claims.schema.json."""
    return {"schema_version": SCHEMA_VERSION, "kind": "claims", "claims": [claim.to_dict() for claim in claims]}

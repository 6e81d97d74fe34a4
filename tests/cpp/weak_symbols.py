"""Fails if an object compiled for an instruction set defines a weak symbol.

The linker keeps one copy of a weak symbol (an inline function, a template's instance), from whichever object comes first: one
compiled for a wide instruction set could so run on a CPU that lacks it.

Usage: weak_symbols.py NM ISA OBJECT... [--isa ISA OBJECT...]...
"""

import subprocess
import sys

# Pointers to the language's own routines: no code of ours.
HARMLESS = ("DW.ref.",)


def weak_symbols(nm: str, path: str) -> list[str]:
    """Names of the weak or unique global symbols that an object file defines."""
    listing = subprocess.run([nm, "--defined-only", "--format=posix", path], check=True, capture_output=True, text=True).stdout
    entries = [line.split() for line in listing.splitlines() if line.strip()]
    if not entries:
        raise SystemExit(f"{path}: no symbols; is it an object file?")
    return [name for name, kind, *_ in entries if kind in "VvWwu" and not name.startswith(HARMLESS)]


def main(words: list[str]) -> int:
    nm, *rest = words
    groups: list[list[str]] = [[]]
    for word in rest:
        if word == "--isa":
            groups.append([])
        else:
            groups[-1].append(word)
    found = checked = 0
    for isa, *objects in groups:
        for path in objects:
            checked += 1
            for name in weak_symbols(nm, path):
                found += 1
                print(f"{isa}: {path.rpartition('/')[2]} defines the weak symbol {name}")
    print(f"{checked} objects of {len(groups)} instruction sets, {found} weak symbols")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

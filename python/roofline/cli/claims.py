"""`roofline claims`: what texts on the roofline claim, whether it holds, and the call that shows it."""

from __future__ import annotations

import argparse

from .outcomes import OK, BadInput, checking_input
from .terminal import Terminal


def claims(options: argparse.Namespace) -> int:
    from ..claims import documents, find_claim, list_claims, to_dict

    screen = Terminal()
    if options.claim_id and (options.document or options.wrong):
        raise BadInput("give the ID of one claim, or --document and --wrong for a list")
    with checking_input():
        found = (find_claim(options.claim_id),) if options.claim_id else list_claims(options.document)
    if options.wrong:
        found = tuple(claim for claim in found if not claim.holds)
    if options.json:
        screen.json(to_dict(found))
    elif options.claim_id:
        (claim,) = found
        screen.lines((f"{claim.document}, {documents()[claim.document]}", f"claim: {claim.claim}", f"{claim.verdict}: {claim.why}"))
        screen.lines((f"shown by: {claim.line}", f"gives: {claim.gives}"))
    else:
        for title, about in documents().items():
            rows = [(claim.id, claim.claim, claim.verdict, claim.why) for claim in found if claim.document == title]
            screen.table(("id", "claim", "verdict", "why"), rows, title=f"{title}, {about}", wide=("id", "claim", "verdict", "why"))
            if rows:
                screen.line()
        wrong = sum(not claim.holds for claim in found)
        screen.line(f"{len(found)} claims, {wrong} do not hold; `roofline claims ID` shows the call behind one")
    return OK

"""`roofline claims`: what texts on the roofline claim, whether it holds, and the call that shows it."""

from __future__ import annotations

import argparse

from .exit_codes import OK, BadInput, checking_input
from .terminal import Terminal

COLUMNS = ("id", "claim", "says", "verdict", "why")


def claims(options: argparse.Namespace) -> int:
    from ..claims import SAYS, documents, find_claim, list_claims, to_dict

    screen = Terminal(wide=options.wide)
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
        screen.lines((f"{claim.document}, {documents()[claim.document]}", f"claim: {claim.claim}"))
        screen.lines((f"{claim.says}: {SAYS[claim.says]}", f"{claim.verdict}: {claim.why}"))
        screen.lines((f"shown by: {claim.line}", f"gives: {claim.gives}"))
    else:
        for title, about in documents().items():
            rows = [(claim.id, claim.claim, claim.says, claim.verdict, claim.why) for claim in found if claim.document == title]
            screen.table(COLUMNS, rows, title=f"{title}, {about}", wide=COLUMNS)
            if rows:
                screen.line()
        wrong = sum(not claim.holds for claim in found)
        screen.lines(f"{says}: {what}" for says, what in SAYS.items())
        screen.line(f"{len(found)} claims, {wrong} do not hold; `roofline claims ID` shows the call behind one")
    return OK

"""`roofline predict`: the expected time of a whole model's phase, from a configuration and a machine; nothing is measured."""

from __future__ import annotations

import argparse

from ..units import fmt_si, parse_bytes, parse_si, parse_time_s
from .models import (
    PHASES,
    TYPES,
    config_flag,
    config_of,
    field_flags,
    given_fields,
    machine_of,
    model_flags,
    phase_of,
    ranks_flags,
    typed,
)
from .outcomes import OK, checking_input
from .terminal import Terminal


def flags(parser: argparse.ArgumentParser) -> None:
    config_flag(parser)
    parser.add_argument(
        "--machine", metavar="FILE|NAME", required=True, help="a machine.json, or a datasheet of `roofline hardware`"
    )
    parser.add_argument("--device", help="which machine of the file")
    phase = parser.add_argument_group("phase")
    phase.add_argument("--phase", choices=PHASES, default="decode", help="what is asked of the model (default decode)")
    field_flags(phase)
    model_flags(parser)
    how = parser.add_argument_group("how it is counted")
    ranks_flags(how)
    how.add_argument(
        "--counting", choices=("full", "weights-and-kv"), default="full", help="everything, or weights and KV cache alone"
    )
    how.add_argument("--compute-utilisation", type=TYPES["float"], default=1.0, metavar="SHARE", help="of compute ceilings")
    how.add_argument("--bandwidth-utilisation", type=TYPES["float"], default=1.0, metavar="SHARE", help="of bandwidth ceilings")
    how.add_argument("--overhead", type=typed(parse_time_s), default=0.0, metavar="TIME", help="added to each step, e.g. 100us")
    how.add_argument("--launch", type=typed(parse_time_s), metavar="TIME", help="of each kernel (default: the machine's latency)")
    how.add_argument(
        "--link", type=typed(lambda text: parse_si(text, "B/s")), metavar="RATE", help="between ranks, one way: 450GB/s"
    )
    how.add_argument("--link-latency", type=typed(parse_time_s), default=0.0, metavar="TIME", help="of a collective, e.g. 10us")
    how.add_argument("--memory", type=typed(parse_bytes), metavar="SIZE", help="of one device, e.g. 80GB (default: the machine's)")
    how.add_argument(
        "--memory-share", type=TYPES["float"], default=1.0, metavar="SHARE", help="of it that may be used (default 1)"
    )
    how.add_argument("--ignore-memory", action="store_true", help="estimate what does not fit in memory too")
    how.add_argument("--advice", action="store_true", help="also what changes would gain")
    how.add_argument(
        "--against", metavar="FILE|NAME", action="append", default=[], help="another machine in the advice, which this asks for too"
    )


def predict(options: argparse.Namespace) -> int:
    from ..transformer import advise, estimate, ridge_batch

    screen = Terminal()
    with checking_input():
        machine = machine_of(options.machine, options.device)
        others = [machine_of(name, None) for name in options.against]
        advised = options.advice or bool(others)
        found = estimate(
            config_of(options), phase_of(options.phase, given_fields(options)), machine, tp=options.tp, ep=options.ep,
            lm_head=options.lm_head, fused=options.fused, counting=options.counting.replace("-", "_"),
            compute_utilisation=options.compute_utilisation,
            bandwidth_utilisation=options.bandwidth_utilisation, overhead_s=options.overhead, launch_s=options.launch,
            link_bytes_per_s=options.link, link_latency_s=options.link_latency, memory_share=options.memory_share,
            memory_bytes=options.memory, must_fit=not options.ignore_memory,
        )  # fmt: skip
        advice = advise(found, machine, others) if advised else ()
        ridge = ridge_batch(found, machine) if advised else None
    if options.json:
        wanted = {"advice": [item.to_dict() for item in advice], "ridge": ridge.to_dict()} if ridge is not None else {}
        screen.json(found.to_dict() | wanted)
        return OK
    headers, rows = found.table()
    if not options.quiet:
        screen.table(headers, rows, title=f"{found.config.name}, {found.phase}, on {found.machine}", wide=("part",))
        screen.line()
    screen.table(("", "value"), found.summary(), wide=("value",))
    screen.line()
    if advice:
        gains = [(a.change, f"{'≤ ' if a.at_most else ''}{a.gain:.3f}×", fmt_si(a.time_s, "s"), a.bound, a.detail) for a in advice]
        headers = ("what would it take", "tokens/s", "time", "then bound by", "and")
        screen.table(headers, gains, wide=("what would it take", "and"))
        screen.line()
    if ridge is not None:
        screen.line(f"compute-bound: {ridge.text}")
        screen.line()
    if not options.quiet:
        screen.lines(found.remarks())
    return OK

"""Copies between a GPU and the host or other GPUs, and the link over which ranks exchange their results."""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller

from ..operators import AllGather, HostCopy, Operator, PeerCopy
from ..operators.host_copy import DIRECTIONS
from ..operators.peer_copy import DIRECTIONS as PEER_DIRECTIONS
from ..units import MIB
from .base import FURTHER, ROOFS, THOROUGH, Identified, Identity, Probe, Target, Wanted, identified_by, want, words

TRANSFER_BYTES = 512 * MIB  # 10 ms at 50 GB/s
LINK_ELEMENTS = 2**28  # bf16: half a GiB, where a ring's start no longer counts
TRANSFERS = {
    "to_device": "host to device", "from_device": "device to host", "to_peer": "device to peer", "from_peer": "peer to device",
    "both": "both directions",
}  # fmt: skip


def _size(target: Target) -> int:
    return min(TRANSFER_BYTES, int(target.facts.get("memory_bytes") or TRANSFER_BYTES * 16) // 16)


def _host(target: Target, depth: str) -> Iterator[Wanted]:
    for variant, rank in (("pinned", FURTHER), ("pageable", THOROUGH)):
        for direction in DIRECTIONS:
            one = HostCopy(size_bytes=_size(target), direction=direction)
            yield want(HOST_COPY, target, rank, (one, variant), kept=False)


def _peers(target: Target, depth: str) -> Iterator[Wanted]:
    for index, peer in enumerate(target.peers):
        for variant in ("copy_engine", "kernel"):
            for direction in PEER_DIRECTIONS:
                first = not index and variant == "copy_engine" and direction in PEER_DIRECTIONS[::2]
                one = PeerCopy(size_bytes=_size(target), direction=direction, peer=peer)
                yield want(PEER_COPY, target, FURTHER if first else THOROUGH, (one, variant), kept=False)


def link_problem(ranks: int) -> AllGather:
    """Parts gathered from so many ranks, large enough for the plateau of the link."""
    return AllGather(elements=LINK_ELEMENTS // ranks * ranks, ranks=ranks, dtype="bf16")


def _link(target: Target, depth: str) -> Iterator[Wanted]:
    if target.peers:
        yield want(LINK, target, ROOFS, (link_problem(len(target.peers) + 1), "library"))


def _identity(target: Target, problem: Operator, variant: str, level: str) -> Identity:
    assert isinstance(problem, (HostCopy, PeerCopy))
    peer = {"peer": problem.peer} if isinstance(problem, PeerCopy) else {}
    return Identity(access=problem.direction, variant=variant, params=peer)


def _name(c: Identified) -> str:
    return words(TRANSFERS[c.access], c.params.get("peer", "") if "peer" in c.params else "", c.variant.replace("_", " "))


def _both(c: Identified) -> str:
    return "both ways at once" if c.access == "both" else ""


HOST_COPY = Probe(
    id="host_copy", kind="transfer", operator="host_copy", summary=HostCopy.summary, roof=False,
    work=methodcaller("compulsory_bytes"), identity=_identity, name=_name, describe=_both, wanted={"cuda": _host},
)  # fmt: skip
PEER_COPY = Probe(
    id="peer_copy", kind="transfer", operator="peer_copy", summary=PeerCopy.summary, roof=False,
    work=methodcaller("compulsory_bytes"), identity=_identity, name=_name, describe=_both, wanted={"cuda": _peers},
)  # fmt: skip
LINK = Probe(
    id="link", kind="link", operator="all_gather", summary="what one rank receives from the others while it sends as much",
    work=Operator.link_bytes, identity=identified_by("ranks"), name=lambda c: "link", wanted={"cuda": _link},
)  # fmt: skip

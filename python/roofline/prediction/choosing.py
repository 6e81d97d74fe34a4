"""The default variant of a problem: the fastest expected one, if the machine has measured its kernels."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Error
from ..kernel_costs import timed_alike
from ..machine import Machine
from ..operators import Operator
from .problems import predict_problem

CLEAR = 1.03  # times as fast: less is within what predictions can tell


def default_variant(
    machine: Machine | None, problem: Operator, backend: str, runs: Callable[[str], bool], *, level: str | None = None
) -> str:
    """The variant of `problem` that runs where none is asked for. backend: "cpu" or "cuda"; runs: whether a variant can run there.

    The rule is `Operator.default_variant`, or where that one cannot run the last other that suits and can. Where `machine` timed
    the kernels of several variants on standard problems, with few rows or many as this one has, it is the one with the shortest
    expected time with operands in `level` (None: the slowest), if that is clearly shorter than the rule's.
    """
    ruled = problem.default_variant(backend)
    suited = [name for name in problem.variants if problem.suits(name, backend) and runs(name)]
    if not runs(ruled):
        ruled = [ruled, *suited][-1]
    if machine is None:
        return ruled
    times = {}
    for name in dict.fromkeys((ruled, *suited)):
        if timed_alike(machine, problem, name):
            try:
                times[name] = predict_problem(machine, problem, variant=name, level=level).time_s
            except Error:  # roofs that were left out for lack of time
                return ruled
    best = min(times, key=lambda name: times[name], default=ruled)
    return best if ruled in times and times[ruled] > CLEAR * times[best] else ruled

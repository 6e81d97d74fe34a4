"""Which measurement is of the shape of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import Error
from ..machine import Machine
from ..operators import Operator
from ..results import Measurement, problem_behind
from ..words import backend_of
from .entries import Entry


def shape_of(problem: Operator) -> object:
    """Equal for problems that are the same work on the same operands, whichever operator states it.

    Products of equal sizes with equal arithmetic and input bytes: a `Matmul` in fp32 a `QuantizedMatmul` with 32-bit weights.
    Problems without products equal themselves alone. The dtype of results is left out, see `filled`.
    """
    products = problem.products()
    if not products:
        return problem
    sizes = tuple((p.term if len(products) > 1 else "", p.count, p.rows, p.columns, p.inner) for p in products)
    read = sum(t.moved_bytes for t in problem.inputs())
    return sizes, problem.compute(), problem.total_flops(), read


def _of_device(results: Sequence[Measurement], machine: Machine | None) -> list[Measurement]:
    """The results of the machine's kind of device. Raises Error where there are none, or where the kind is not known."""
    kinds = sorted({backend_of(m.device) for m in results})
    if machine is None:
        if len(kinds) > 1:
            raise Error(f"the results are of {' and '.join(kinds)} devices: name the machine that they stand beside")
        return list(results)
    wanted = backend_of(machine.device)
    if results and wanted not in kinds:
        raise Error(
            f"the results were measured on a {' and '.join(kinds)} device, and {machine.name} is a {wanted} device; give "
            "results of such a device, or the machine that was measured"
        )
    return [m for m in results if backend_of(m.device) == wanted]


def filled(
    entries: Iterable[Entry], results: Iterable[Measurement], machine: Machine | None
) -> tuple[dict[int, Measurement], tuple[str, ...]]:
    """For indices of `entries` the fastest undisturbed measurement of their shape with operands from memory, and notes.

    Raises Error where the results are of another kind of device, or are none.
    """
    given = list(results)
    if not given:
        raise Error("the results hold no measurement")
    own = _of_device(given, machine)
    usable = [m for m in own if m.time_s is not None and m.status == "ok" and m.cache_state != "warm"]
    by_shape: dict[object, tuple[float, Measurement, Operator]] = {}
    for m in usable:
        problem, time_s = problem_behind(m), m.time_s
        if problem is not None and time_s is not None:
            shape = shape_of(problem)
            if shape not in by_shape or time_s < by_shape[shape][0]:
                by_shape[shape] = (time_s, m, problem)
    found: dict[int, Measurement] = {}
    notes: list[str] = []
    for index, entry in enumerate(entries):
        if (match := by_shape.get(shape_of(entry.problem))) is None:
            continue
        _, found[index], problem = match
        wrote, writes = (p.outputs()[0].dtype for p in (problem, entry.problem))
        if wrote != writes:
            notes.append(f"{entry.name}: measured with results in {wrote}, not {writes}")
    names = dict.fromkeys(m.processor for m in own if m.processor != m.device)
    on = f", on {' and '.join(names)}" if names else ""
    notes.insert(0, f"measured: {len(found)} kernels, the fastest variant of each shape{on}")
    if out := len(given) - len(usable):
        notes.append(f"{out} of {len(given)} results are left out: disturbed, warm, failed or of another device")
    return found, tuple(dict.fromkeys(notes))

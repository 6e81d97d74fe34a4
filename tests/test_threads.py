"""Several threads at once: kernels give the right bits, measurements follow each other, and what would wait for ever is refused."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from example import BRIEF
from programs import printed

import roofline
from roofline.errors import Error, Unsupported
from roofline.measurement.devices import open_device
from roofline.measurement.tensors import allocate_all, bind
from roofline.operators import OPERATORS, CoreToCore, Operator, Softmax

pytestmark = pytest.mark.all_cores

THREADS = 4
CALLS = int(os.environ.get("ROOFLINE_THREAD_CALLS", "1000"))  # of every kernel, by all threads together
ON_CPU = [(kind, variant) for kind in OPERATORS.values() for variant, known in kind.variants.items() if "cpu" in known.dtypes]


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """work(thread) on so many threads, begun at the same moment; the first exception of any is raised."""
    begin = threading.Barrier(threads)

    def begun(thread: int) -> None:
        begin.wait()
        work(thread)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(begun, thread) for thread in range(threads)]:
            done.result()


def smallest(kind: type[Operator], dtype: str) -> Operator:
    """The case of the operator that is over soonest."""
    cases = [case.problem for case in kind.cases() if not case.slow and getattr(case.problem, "dtype", dtype) == dtype]
    return min(cases, key=lambda problem: (problem.total_flops() + problem.footprint_bytes(), str(problem)))


@pytest.mark.parametrize(("kind", "variant"), ON_CPU, ids=lambda value: value if isinstance(value, str) else value.name)
def test_every_kernel_gives_the_same_bits_from_any_thread(kind: type[Operator], variant: str) -> None:
    device = open_device("cpu")
    problem = smallest(kind, kind.variants[variant].dtypes["cpu"][0])
    if kind is CoreToCore and device.threads == 1:
        pytest.skip("core_to_core needs two cores")
    tensors = [allocate_all(device, problem, seed) for seed in range(THREADS)]
    try:
        kernels = [bind(device, problem, variant, own) for own in tensors]
    except Unsupported as reason:
        pytest.skip(str(reason))
    outputs = [[own[spec.name].raw().view(np.uint8) for spec in problem.outputs()] for own in tensors]
    before = [[output.copy() for output in own] for own in outputs]  # what is updated in place begins there again
    for own in before:
        for spec, output in zip(problem.outputs(), own, strict=True):
            if spec.role != "in_out":
                output.fill(0xA5)
    for kernel in kernels:
        kernel.run()
    expected = [[output.copy() for output in own] for own in outputs]
    # A kernel that is slow even here is called less often: a call takes as long on one thread as on many.
    begin = time.perf_counter()
    kernels[0].run()
    calls = max(int(min(CALLS, 0.15 / (time.perf_counter() - begin))) // THREADS, 100)
    wrong = [0] * THREADS

    def work(thread: int) -> None:
        kernel, own = kernels[thread], list(zip(outputs[thread], before[thread], expected[thread], strict=True))
        for _ in range(calls):
            for output, start, _want in own:
                output[...] = start
            kernel.run()
            wrong[thread] += any(not np.array_equal(output, want) for output, _start, want in own)

    together(work)
    assert wrong == [0] * THREADS, f"of {calls} results a thread"


def softmax_of(seed: int) -> tuple[Softmax, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(seed).standard_normal((64, 128)).astype(np.float32)
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return Softmax(rows=64, columns=128), x, powers / powers.sum(axis=1, keepdims=True)


def runs_right(seed: int, times: int = 1, **options: Any) -> None:
    problem, x, expected = softmax_of(seed)
    for _ in range(times):
        assert np.allclose(roofline.run(problem, x=x, **options)["y"], expected, rtol=1e-5, atol=1e-9)


def measured() -> roofline.Measurement:
    return roofline.measure(Softmax(rows=8, columns=8), policy=BRIEF, cache_state="warm")


def test_run_is_right_from_any_number_of_threads() -> None:
    together(lambda thread: runs_right(thread, 100, threads=1 + thread % 2), 8)


def test_devices_are_opened_once() -> None:
    script = """
        import threading, roofline.measurement.devices as d
        found, begin = [], threading.Barrier(8)
        def work():
            begin.wait(); found.append(id(d.open_device('cpu')))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert len(found) == 8 and len(set(found)) == 1, found
    """
    for _ in range(3):
        printed(script)


def test_run_from_the_executor_of_asyncio() -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(asyncio.to_thread(runs_right, seed, 20) for seed in range(6)))

    asyncio.run(all_of_them())


def test_measurements_of_several_threads_follow_each_other() -> None:
    at_work, most = 0, 0
    found: list[roofline.Measurement] = []

    def counted() -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.001)  # lets another thread in, if any may
        at_work -= 1

    def work(thread: int) -> None:
        if thread % 2:
            found.append(roofline.measure(Softmax(rows=64, columns=64), policy=BRIEF, cache_state="warm"))
        else:
            found.append(roofline.measure_callable(counted, flops=1000, bytes=1000, policy=BRIEF))

    together(work)
    assert len(found) == THREADS and most == 1
    assert all(m.samples_s and m.correctness.get("passed", True) for m in found)


def test_a_sweep_and_runs_in_other_threads() -> None:
    results: list[roofline.Results] = []

    def work(thread: int) -> None:
        if thread:
            runs_right(thread, 50)
        else:
            results.append(roofline.sweep(Softmax(), rows=[8, 16], columns=[32], policy=BRIEF, cache_state="warm", device="cpu"))

    together(work)
    assert all(m.correctness["passed"] for m in results[0])


def test_a_callable_may_run_kernels_on_its_own_thread_and_on_others() -> None:
    def work() -> None:
        runs_right(1)
        together(lambda thread: runs_right(thread), 2)

    assert roofline.measure_callable(work, flops=1000, bytes=1000, policy=BRIEF).samples_s


def test_a_callable_that_measures_is_refused() -> None:
    with pytest.raises(Error, match="called by the callable that is being measured"):
        roofline.measure_callable(measured, flops=1, bytes=1, policy=BRIEF)
    with pytest.raises(Error, match="another thread has measured a callable for more than 5 s"):
        roofline.measure_callable(lambda: together(lambda _: measured(), 1), flops=1, bytes=1, policy=BRIEF)
    runs_right(3)  # nothing is left locked
    assert measured().samples_s


@pytest.mark.skipif(sys.platform != "linux", reason="forking is Linux's way here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork beside threads, which is what is tested
def test_a_child_forked_while_others_run_and_measure() -> None:
    stop = threading.Event()
    measured()  # no fork in the middle of a first import

    def work(thread: int) -> None:
        while not stop.is_set():
            if thread:
                runs_right(thread, 5)
            else:
                measured()

    with ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(work, thread) for thread in range(3)]
        try:
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    try:
                        runs_right(7, 5)
                        assert measured().correctness["passed"]
                        os._exit(0)
                    finally:
                        os._exit(1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            stop.set()
        for done in busy:
            done.result()


def test_ctrl_c_ends_the_waiting() -> None:
    script = (
        "import threading, time, roofline\n"
        "from roofline.measurement.devices import measuring, open_device\n"
        "device, held = open_device('cpu'), threading.Event()\n"
        "def hold():\n    with measuring(device):\n        held.set(); time.sleep(60)\n"
        "threading.Thread(target=hold, daemon=True).start(); held.wait(); print('held', flush=True)\n"
        "try:\n    roofline.measure(roofline.Softmax(rows=8, columns=8))\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
        "    import os; os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert said == "interrupted\n" and process.returncode == 0


def test_what_only_the_module_makes() -> None:
    core = open_device("cpu").core
    module = sys.modules["roofline._core"]
    for kind in (module.Device, module.Memory, module.BoundKernel, module.Taken, module.Turn):
        for make in (kind, lambda kind=kind: kind.__new__(kind)):
            with pytest.raises(TypeError):
                make()
    with pytest.raises(Error, match="is None"):
        core.sample([None], policy=BRIEF.to_dict())
    with pytest.raises(Error, match="None"):
        core.bind("relu", "fused", "fp32", [("x", None, 0, "fp32", [1, 1], [], "in")], {})
    for policy in ({}, {**BRIEF.to_dict(), "batch_s": float("nan")}, {**BRIEF.to_dict(), "noise": -1.0}):
        with pytest.raises(Error, match="sampling policy"):
            core.sample([core.callable(lambda: None)], policy=policy)
    memory = core.memory(64)
    for move in (memory.read, memory.write):
        with pytest.raises(Error, match="Python objects"):
            move(np.array([None] * 4))

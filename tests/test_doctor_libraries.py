"""`roofline doctor --libraries`: rules on recorded facts, worker processes that misbehave, and planted faults."""

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import printed
from tables import gives

pytest.importorskip("roofline._core")

from roofline.doctor import libraries as module, sessions, time_libraries, worker
from roofline.doctor.rules import Cpu, Facts, reasons, shown
from roofline.errors import Error

ZEN3 = Cpu(name="AMD EPYC", vendor="AuthenticAMD", isas=("scalar", "avx2"), cores=2, logical=2)
ZEN5 = Cpu(
    name="AMD EPYC 9355", vendor="AuthenticAMD", isas=("scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16"), cores=2, logical=2
)
SAPPHIRE = Cpu(
    name="Intel Xeon",
    vendor="GenuineIntel",
    isas=("scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx"),
    cores=32,
    logical=32,
)
OPENBLAS = {"blas": "openblas", "blas_version": "0.3.31", "layer": "pthreads", "build": "scipy-openblas"}


def found(cpu: Cpu, **facts: Any) -> list[tuple[str, str]]:
    """(why, cure) of each rule that applies."""
    given = {"library": "numpy", "dtype": "fp32", "threads": cpu.cores, **facts}
    return [(reason.why, shown(reason.cure)) for reason in reasons(cpu, Facts(**given))]


# -- rules --------------------------------------------------------------------------------------------------------------------


DIED = {"died": "its process ended with signal SIGILL", "threads": 0}
test_rules = gives(
    lambda cpu, facts: found(cpu, **facts),
    # NumPy 2.4 on a Zen 5: 47 % of the roof, 1.9 times faster with SkylakeX.
    (ZEN5, {**OPENBLAS, "kernels": "Haswell"},
     [("OpenBLAS runs Haswell kernels (AVX2) on a CPU with AVX-512: it does not know this CPU", "OPENBLAS_CORETYPE=SkylakeX")]),
    # Kernels that fit, or are not known; and elsewhere than on x86 none is judged.
    *((cpu, {**OPENBLAS, "kernels": kernels}, []) for cpu, kernels in (
        (ZEN3, "Haswell"), (ZEN3, "Zen"), (ZEN5, "SkylakeX"), (SAPPHIRE, "SapphireRapids"), (ZEN5, "newcore"),
        (Cpu(isas=("scalar", "neon"), cores=4, logical=4), "generic"),
    )),
    # SkylakeX on a Zen 3: SIGILL in the first product.
    (ZEN3, {**DIED, "environment": {"OPENBLAS_CORETYPE": "SkylakeX"}},
     [("OPENBLAS_CORETYPE=SkylakeX asks for avx512 kernels, and this CPU has avx2", "OPENBLAS_CORETYPE=Haswell")]),
    (ZEN3, DIED, []),
    # Limits in the environment.
    (SAPPHIRE, {"blas": "mkl", "environment": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}},
     [("MKL_ENABLE_INSTRUCTIONS=AVX2 limits its instruction sets", "unset MKL_ENABLE_INSTRUCTIONS")]),
    (SAPPHIRE, {"blas": "onednn", "environment": {"ONEDNN_MAX_CPU_ISA": "DEFAULT"}}, []),
    # Threads and cores.
    (ZEN3, {**OPENBLAS, "threads": 1, "environment": {"OPENBLAS_NUM_THREADS": "1"}},
     [("1 thread on 2 usable cores: OPENBLAS_NUM_THREADS=1 is set", "OPENBLAS_NUM_THREADS=2")]),
    (SAPPHIRE, {**OPENBLAS, "threads": 4, "environment": {"OMP_NUM_THREADS": "4,2"}},
     [("4 threads on 32 usable cores: OMP_NUM_THREADS=4,2 is set", "OMP_NUM_THREADS=32")]),
    (SAPPHIRE, {**OPENBLAS, "threads": 8}, [("8 threads on 32 usable cores", "OPENBLAS_NUM_THREADS=32")]),
    (ZEN3, {**OPENBLAS, "threads": 1, "layer": "disabled"},
     [("1 thread on 2 usable cores: its BLAS is built without threads", "")]),
    (ZEN3, {**OPENBLAS, "threads": 8, "environment": {"OMP_NUM_THREADS": "8"}},
     [("8 threads on 2 usable cores: OMP_NUM_THREADS=8 is set", "OMP_NUM_THREADS=2")]),
    (Cpu(cores=2, logical=64, quota=2.5), {**OPENBLAS, "threads": 64},
     [("64 threads on 2 usable cores: the control group allows 2.5 and stops threads in mid-run", "OPENBLAS_NUM_THREADS=2")]),
    (Cpu(cores=8, logical=16), {**OPENBLAS, "threads": 16},
     [("16 threads on 8 usable cores: more than one thread shares a core", "OPENBLAS_NUM_THREADS=8")]),
    # What was asked for is no fault, and our own pool follows the usable cores.
    (ZEN3, {**OPENBLAS, "asked": 1, "threads": 1}, []),
    (ZEN3, {**OPENBLAS, "library": "roofline", "threads": 1}, []),
    (ZEN3, {"library": "onnxruntime", "blas": "mlas", "threads": 1}, [("1 thread on 2 usable cores", "")]),
)  # fmt: skip


test_mkl_asks_who_made_the_cpu = gives(
    lambda cpu, version: found(cpu, library="torch", blas="mkl", blas_version=version),
    (ZEN5, "2024.2", [("MKL leaves AVX-512 unused on CPUs that are not Intel's", "")]),
    (ZEN3, "2024.2", []),
    (ZEN3, "2020.1", []),
    (
        ZEN3,
        "2019.0.5-Product",
        [("MKL 2019.0.5-Product takes its slowest path on CPUs that are not Intel's", "MKL_DEBUG_CPU_TYPE=5")],
    ),
    (ZEN3, "2020.0", [("MKL 2020.0 takes its slowest path on CPUs that are not Intel's", "MKL_DEBUG_CPU_TYPE=5")]),
    (SAPPHIRE, "2024.2", []),
    (SAPPHIRE, "2019.0", []),
)


@pytest.mark.parametrize("kernels", ["Katmai", "Prescott", "Nehalem", "Sandybridge", "generic"])
def test_kernels_without_fma(kernels: str) -> None:
    ((why, cure),) = found(ZEN3, kernels=kernels, environment={"OPENBLAS_CORETYPE": "Prescott"}, **OPENBLAS)
    assert "(no AVX2) on a CPU with AVX2: OPENBLAS_CORETYPE=Prescott is set" in why
    assert cure == "OPENBLAS_CORETYPE=Haswell"


def test_a_reference_blas_is_named() -> None:
    ((why, cure),) = found(ZEN3, build="blas", threads=0)
    assert why.startswith("no optimised BLAS is loaded (built with blas)")
    assert cure == ""
    assert found(ZEN3, build="scipy-openblas", threads=0) == [], "threadpoolctl is missing, and not the BLAS"


def test_bf16_needs_its_instructions() -> None:
    assert "no bf16 arithmetic" in found(ZEN3, library="torch", dtype="bf16", blas="onednn")[0][0]
    assert found(ZEN5, library="torch", dtype="bf16", blas="onednn") == []


# -- the worker ---------------------------------------------------------------------------------------------------------------


def test_protocol_buffers_are_encoded_as_their_documentation_says() -> None:
    assert worker.field(1, 150) == bytes.fromhex("089601")
    assert worker.field(2, b"testing") == bytes.fromhex("120774657374696e67")


def test_the_onnx_model_is_one_matrix_product() -> None:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(worker.matmul_model("fp64", 3), providers=["CPUExecutionProvider"])
    a, b = np.arange(9.0).reshape(3, 3), np.eye(3)[::-1].copy()
    assert (session.run(None, {"a": a, "b": b})[0] == a @ b).all()


@pytest.mark.parametrize("name", ["numpy", "scipy", "torch", "onnxruntime", "roofline"])
def test_every_library_multiplies(name: str) -> None:
    """In a process of its own; what it prints does not reach the replies."""
    pytest.importorskip(name)
    with sessions.Session(name, {}) as session:
        opened = session.ask(120.0, do="open")
        for dtype in opened["dtypes"]:
            try:
                reply = session.ask(60.0, do="time", dtype=dtype, size=96, threads=1, seconds=0.0)
            except sessions.Broken as reason:
                assert dtype == "bf16" and str(reason).startswith("Unsupported"), reason
                continue
            assert reply["samples_s"] and min(reply["samples_s"]) > 0
            assert reply["threads"] == 1
            assert reply["blas"]


class Wrong:
    version, dtypes = "1", ("fp32",)

    def limited(self, threads: int) -> Any:
        return io.StringIO()

    def facts(self, dtype: str) -> dict[str, Any]:
        return {}

    def gemm(self, dtype: str, size: int, threads: int) -> Any:
        a, b = np.random.default_rng(0).random((2, size, size))
        c = a @ b
        c[size // 2, 1] += 1
        return (lambda: None), (lambda: (a, b, c))


def test_a_wrong_product_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(worker.LIBRARIES, "wrong", Wrong)
    server = worker.Server("wrong")
    server.open()
    assert "a wrong result" in server.time("fp32", 64, 0, 0.0)["error"]


# -- processes that misbehave -------------------------------------------------------------------------------------------------

STUB = """
import json, os, sys, time
answer = sys.stdout
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "open":
        OPEN
        reply = {"version": "9.9", "dtypes": ["fp32"]}
    else:
        TIME
        rate = 47e9 * (2 if os.environ.get("OPENBLAS_CORETYPE") == "SkylakeX" else 1)
        reply = {"samples_s": [2 * request["size"] ** 3 / rate] * 5, "cpu_s": 0.2, "wall_s": 0.1, "blas": "openblas",
                 "blas_version": "0.3.31", "layer": "pthreads", "kernels": os.environ.get("OPENBLAS_CORETYPE", "Haswell"),
                 "threads": request["threads"] or 2, "build": ""}
    print(json.dumps(reply), flush=True)
"""


def stub(folder: Path, opening: str = "pass", timing: str = "pass") -> tuple[str, str]:
    path = folder / "stub.py"
    path.write_text(STUB.replace("OPEN\n", f"{opening}\n").replace("TIME\n", f"{timing}\n"))
    return sys.executable, str(path)


@pytest.fixture
def zen5(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roof of 100 GFLOP/s, on an idle machine that never waits."""
    monkeypatch.setattr(module, "_roof", lambda device, probe: 100e9)
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    monkeypatch.setattr(module, "BUSY", float("inf"))
    monkeypatch.setattr(module, "this_cpu", lambda: ZEN5)
    for name in module.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_run_below_the_roof_is_explained_and_cured(zen5: None, tmp_path: Path, schema: Any) -> None:
    report = time_libraries(["numpy"], command=stub(tmp_path))
    by_threads = {run.asked: run for run in report.runs}
    assert set(by_threads) == {0, 1}
    for run in report.runs:
        assert run.share == pytest.approx(0.47)
        assert run.below and "Haswell kernels" in run.why[0]
        assert run.cure is not None
        assert run.cure.environment == {"OPENBLAS_CORETYPE": "SkylakeX"}
        assert run.cure.gain == pytest.approx(2.0)
        assert run.cure.works and run.cure.share == pytest.approx(0.94)
    check = schema("libraries")
    text = json.dumps(report.to_dict())
    check.validate(json.loads(text))
    assert str(tmp_path) not in text and "/usr" not in text


def test_a_cure_is_named_but_not_tried_where_it_was_not_wanted(zen5: None, tmp_path: Path) -> None:
    (run,) = time_libraries(["numpy"], quick=True, cure=False, command=stub(tmp_path)).runs
    assert run.cure is not None
    assert (run.cure.reason, run.cure.gain, run.cure.works) == ("not tried", None, False)


def test_a_run_at_the_roof_needs_no_reason(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    (run,) = time_libraries(["numpy"], quick=True, command=stub(tmp_path)).runs
    assert not run.below and run.why == () and run.cure is None
    assert run.environment == {"OPENBLAS_CORETYPE": "SkylakeX"}


def test_more_than_the_roof_is_implausible(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_roof", lambda device, probe: 40e9)
    (run,) = time_libraries(["numpy"], quick=True, cure=False, command=stub(tmp_path)).runs
    assert run.status == "implausible" and "118 % of the roof" in run.reason


def test_a_library_that_is_absent_is_one_line(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIBRARIES", ("no_such_library",))
    report = time_libraries(["no_such_library"], command=stub(tmp_path))
    assert [(library.state, library.reason) for library in report.libraries] == [("absent", "not installed")]
    with pytest.raises(Error, match="unknown library lapack"):
        time_libraries(["lapack"])


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        ("os.abort()", "its process ended with signal SIGABRT"),
        ("sys.exit('/usr/lib/libblas.so.3: cannot open')", "its process ended with exit code 1: libblas.so.3: cannot open"),
        ("print('hello')", "its process answered in something else than JSON"),
        ("time.sleep(60)", "its process gave no answer within 1 s"),
        (
            "print(json.dumps({'error': 'ImportError: /opt/lib/libmkl.so: no such file'}), flush=True)",
            "ImportError: libmkl.so: no such file",
        ),
    ],
)
def test_a_broken_library_is_one_line(
    zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: str, reason: str
) -> None:
    monkeypatch.setattr(module, "OPEN_LIMIT_S", 1.0 if "sleep" in opening else 60.0)
    begun = time.monotonic()
    report = time_libraries(["numpy"], command=stub(tmp_path, opening=opening))
    assert [(library.state, library.reason) for library in report.libraries] == [("broken", reason)]
    assert report.runs == ()
    assert time.monotonic() - begun < 40


def test_a_library_that_dies_on_its_first_product(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels for another CPU it does, and with the right ones it runs."""
    monkeypatch.setattr(module, "this_cpu", lambda: ZEN3)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    command = stub(tmp_path, timing="os.environ['OPENBLAS_CORETYPE'] == 'SkylakeX' and os.kill(os.getpid(), 4)")
    (run,) = time_libraries(["numpy"], quick=True, command=command).runs
    assert (run.status, run.reason) == ("failed", "its process ended with signal SIGILL")
    assert run.cure is not None
    assert run.cure.works and run.cure.after_samples_s and not run.cure.before_samples_s


def test_nothing_stays_behind(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's own children end with it."""
    pid = tmp_path / "pid"
    child = f"import subprocess; open({str(pid)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid)); time.sleep(60)"
    monkeypatch.setattr(module, "OPEN_LIMIT_S", 5.0)
    time_libraries(["numpy"], command=stub(tmp_path, opening=child))
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":  # ended, and waits for a parent to ask
            return
        time.sleep(0.1)
    pytest.fail("a process that the worker started is still there")


# -- planted faults, with the real libraries ----------------------------------------------------------------------------------


def examined(**environment: str) -> dict[str, Any]:
    code = """
import json
from roofline.doctor import time_libraries
print(json.dumps(time_libraries(["numpy"], quick=True).to_dict()))
"""
    report: dict[str, Any] = json.loads(printed(code, **environment))
    return next(run for run in report["runs"] if run["dtype"] == "fp32")


def uses_openblas() -> bool:
    return any(pool["internal_api"] == "openblas" for pool in worker.pools())


@pytest.mark.timing
def test_kernels_of_an_old_cpu_are_found_and_cured() -> None:
    if not uses_openblas() or "avx2" not in module.this_cpu().isas:
        pytest.skip("NumPy has no OpenBLAS with kernels to choose from here")
    run = examined(OPENBLAS_CORETYPE="Prescott")
    assert "kernels (no AVX2)" in run["why"][0]
    assert run["derived"]["share"] < 0.5
    assert run["cure"]["works"] and run["cure"]["gain"] > 2


@pytest.mark.timing
def test_a_forgotten_thread_limit_is_found_and_cured() -> None:
    if not uses_openblas() or module.this_cpu().cores < 2:
        pytest.skip("NumPy has no OpenBLAS, or there is one core")
    run = examined(OPENBLAS_NUM_THREADS="1")
    assert "OPENBLAS_NUM_THREADS=1 is set" in run["why"][0]
    assert run["cure"]["environment"] == {"OPENBLAS_NUM_THREADS": str(module.this_cpu().cores)}
    assert run["cure"]["gain"] > 1.3


# -- the command --------------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_was_found(zen5: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    from roofline.cli import main

    monkeypatch.setattr(
        "roofline.doctor.time_libraries", lambda **options: time_libraries(["numpy"], command=stub(tmp_path), **options)
    )
    shown = cli.out(["doctor", "--libraries", "--quick"])
    for expected in (
        "openblas 0.3.31 Haswell",
        "47.0 %",
        "does not know this CPU",
        "OPENBLAS_CORETYPE=SkylakeX",
        "47.0 → 94.0 (2.00×)",
    ):
        assert expected in shown
    (run,) = cli.json(["doctor", "--libraries", "--quick", "--no-cure"])["runs"]
    assert run["cure"]["reason"] == "not tried"
    assert main(["doctor", "--no-cure"]) == 2

"""The CUDA backend where there is no GPU: what was built or why not, why no device is usable, and CMake's choices."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import python

from roofline.errors import Error, Unsupported
from roofline.measurement import build_info, list_devices, open_device

ROOT = Path(__file__).resolve().parent.parent
CMAKE = ROOT / "cmake"


def built() -> bool:
    return build_info()["cuda"] in (True, "ON")


def without_gpu() -> str:
    """Why there is no usable GPU; skips where there is one."""
    missing = [d["missing"] for d in list_devices() if d["name"].startswith("cuda")]
    if not all(missing):
        pytest.skip("there is a GPU here")
    return missing[0]


def test_built_or_the_reason_why_not() -> None:
    info = build_info()
    if built():
        assert re.fullmatch(r"\d+\.\d+(\.\d+)*", info["cuda_version"])
        assert all(re.fullmatch(r"\d+[af]?(-real|-virtual)?|all|all-major", arch) for arch in info["cuda_archs"].split())
    else:
        assert info["cuda_why_not"]


def test_without_a_gpu_the_reason_names_what_is_missing() -> None:
    reason = without_gpu()
    if built():
        # What the driver or the runtime said, by name, and both versions.
        assert re.search(r"cudaError\w+", reason), reason
        assert "driver" in reason and "runtime" in reason
    else:
        assert "not built" in reason


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_opening_a_missing_gpu_is_unsupported(name: str) -> None:
    reason = without_gpu()
    with pytest.raises(Unsupported) as raised:
        open_device(name)
    expected = re.search(r"cudaError\w+", reason)
    assert (expected[0] if expected else "not built") in str(raised.value)


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cuda:-1", "cuda:0x", "gpu"])
def test_malformed_device_names_are_errors(name: str) -> None:
    with pytest.raises(Error):
        open_device(name)


def test_asking_again_after_a_refusal_gives_the_same_reason() -> None:
    """An error of one call must not stick to the next."""
    assert without_gpu() == without_gpu()
    assert open_device("cpu").name == "cpu"


@pytest.mark.gpu
def test_a_gpu_states_what_it_is() -> None:
    facts = open_device("cuda:0").facts
    assert facts["gpu_name"] and str(facts["architecture"]).startswith("sm_")
    for name in ("sms", "memory_bytes", "l2_bytes", "max_clock_hz", "memory_bus_bits"):
        assert facts[name] > 0, name


# -- CMake, on a project of one empty library -------------------------------------------------------------------------------------

PROJECT = """
cmake_minimum_required(VERSION 3.25...4.1)
project(probe LANGUAGES CXX)
set(ROOFLINE_CUDA AUTO CACHE STRING "")
set(ROOFLINE_CUDA_WHEELS "" CACHE STRING "")
add_library(roofline_core STATIC empty.cpp)
include(cmake/cuda.cmake)
message(STATUS "built=${ROOFLINE_CUDA_BUILT} archs=${ROOFLINE_CUDA_ARCHS} why=${ROOFLINE_CUDA_WHY_NOT} own=${roofline_sm90a}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if not shutil.which("cmake"):
        pytest.skip("no cmake here")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "empty.cpp").write_text("int roofline_empty;\n")
    (tmp_path / "cmake").mkdir()
    for file in ("cuda.cmake", "cuda_locate.py"):
        shutil.copy(CMAKE / file, tmp_path / "cmake" / file)
    for source in ("csrc/cuda/device.cpp", "csrc/cuda/rows/rows.cu", "csrc/cuda/sm90a/mma.cu", "csrc/cuda/sm90a/absent.cpp"):
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text("")
    return tmp_path


def configure(project: Path, *words: str, **environment: str) -> tuple[int, str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDACXX", "CUDAARCHS", "CUDA_HOME", "CUDA_PATH")}
    run = subprocess.run(
        ["cmake", "-S", ".", "-B", "b", *words], cwd=project, env=clean | environment, text=True, capture_output=True
    )
    return run.returncode, re.sub(r"\s+", " ", run.stdout + run.stderr)


def broken_compiler(project: Path) -> str:
    compiler = project / "nvcc"
    compiler.write_text("#!/bin/sh\necho 'nvcc: no licence on Sundays' >&2\nexit 3\n")
    compiler.chmod(0o755)
    return str(compiler)


def test_cuda_off(project: Path) -> None:
    code, output = configure(project, "-DROOFLINE_CUDA=OFF")
    assert code == 0 and "built=OFF" in output and "switched off" in output


@pytest.mark.parametrize("missing", [True, False])
def test_auto_never_fails_and_on_does(project: Path, missing: bool) -> None:
    compiler = "/nonexistent/nvcc" if missing else broken_compiler(project)
    code, output = configure(project, CUDACXX=compiler)
    assert code == 0 and "built=OFF" in output
    assert ("no such file" if missing else "no licence on Sundays") in output.partition("why=")[2].replace("No such", "no such")
    code, output = configure(project, "-DROOFLINE_CUDA=ON", CUDACXX=compiler)
    assert code != 0 and "ROOFLINE_CUDA=ON, but the CUDA compiler does not run" in output


@pytest.mark.parametrize("option", ["-DROOFLINE_CUDA_WHEELS=1", "-DROOFLINE_CUDA_WHEELS=headersx"])
def test_unknown_wheels_stop_naming_both(project: Path, option: str) -> None:
    code, output = configure(project, option)
    assert code != 0 and "headers" in output and "toolkit" in output


def test_unknown_switch_stops(project: Path) -> None:
    code, output = configure(project, "-DROOFLINE_CUDA=MAYBE")
    assert code != 0 and "use AUTO, ON or OFF" in output


def test_a_compiler_that_appears_later_is_found(project: Path) -> None:
    """And architectures it does not know are left out, not fatal; code for one architecture alone is built with it."""
    if not any(shutil.which("nvcc", path=path) for path in (os.environ.get("PATH"), "/usr/local/cuda/bin")):
        pytest.skip("no nvcc here")
    assert "built=OFF" in configure(project, CUDACXX="/nonexistent/nvcc")[1]
    code, output = configure(project, CUDAARCHS="80;35;90a-real")
    assert code == 0 and "built=ON archs=80;90a-real" in output
    assert "does not know architecture 35" in output
    assert "own=csrc/cuda/sm90a/" in output
    expected = {"80-real;100-virtual": False, "80-real;90-virtual": True, "all": True}
    for archs, own in expected.items():  # in the same folder: the compiler is tried once
        output = configure(project, f"-DCMAKE_CUDA_ARCHITECTURES={archs}")[1]
        assert f"built=ON archs={archs} " in output
        assert ("own=csrc/cuda/sm90a/mma.cu" in output) == own, archs


def test_locating_files_of_wheels(tmp_path: Path) -> None:
    for major in ("12", "13"):
        header = tmp_path / f"nvidia/cu{major}/include/only_here.h"
        header.parent.mkdir(parents=True)
        header.write_text("")

    def locate(*words: str) -> list[str]:
        return python(str(CMAKE / "cuda_locate.py"), *words, PYTHONPATH=str(tmp_path)).stdout.splitlines()

    assert locate("include/only_here.h", "include/nowhere.h") == [str((tmp_path / "nvidia/cu13/include/only_here.h").resolve()), ""]
    assert "cu12" in locate("--major", "12", "include/only_here.h")[0]

"""What Python declares for a built backend, C++ has, and the reverse; and the hand-written stub of the compiled module."""

from pathlib import Path

import pytest
from programs import python

from roofline.measurement import build_info, open_device
from roofline.operators import OPERATORS
from roofline.operators.mapped import Mapped


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_declared_and_listed_kernels_agree(backend: str) -> None:
    """Whether there is a device for them or not."""
    core = pytest.importorskip("roofline._core")
    if backend == "cuda" and not build_info()["cuda"]:
        assert core.kernels(backend) == []
        pytest.skip(f"the CUDA backend was not built: {build_info()['cuda_why_not']}")
    declared = {
        (operator.name, variant, dtype)
        for operator in OPERATORS.values()
        for variant, facts in operator.variants.items()
        for dtype in facts.dtypes.get(backend, ())
    }
    kernels = core.kernels(backend)
    listed = {(k["operator"], k["variant"], k["dtype"]) for k in kernels}
    assert declared == listed
    assert len(listed) == len(kernels), "a kernel is listed twice"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_a_device_has_the_kernels_of_its_backend_and_says_which_cannot_run(device: str) -> None:
    core, opened = pytest.importorskip("roofline._core"), open_device(device)
    assert [{k: v for k, v in kernel.items() if k != "missing"} for kernel in opened.kernels] == core.kernels(opened.backend)
    assert any(not kernel["missing"] for kernel in opened.kernels)


def test_what_an_operator_does_not_state_is_named() -> None:
    with pytest.raises(TypeError, match="operator Half does not state variants, flops, cases, mapped"):
        type("Half", (Mapped,), {"name": "half", "summary": "half of one"})


def test_the_stub_matches_the_compiled_module(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="stubtest comes with mypy, which is not installed")
    try:
        import roofline._core
    except ImportError as error:
        pytest.skip(f"the compiled module does not load: {error}")
    package = Path(str(roofline.__file__)).parent
    assert (package / "_core.pyi").is_file(), "the stub is not in the package that is tested"
    # No type in a signature is compared: NumPy's would be read for seconds.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-numpy.*]\nfollow_imports = skip\n")
    # mypy finds an installed package by itself, and refuses to be told where it is.
    told = {} if "site-packages" in package.parts else {"MYPYPATH": str(package.parent)}
    stubtest = ("-m", "mypy.stubtest", "--mypy-config-file", "mypy.ini", "roofline._core")
    done = python(*stubtest, cwd=tmp_path, MYPY_CACHE_DIR=str(tmp_path), **told)
    assert done.returncode == 0, done.stdout + done.stderr

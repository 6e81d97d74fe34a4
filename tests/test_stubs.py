"""The hand-written stub of the compiled module says what the module has."""

from pathlib import Path

import pytest
from programs import python

ROOT = Path(__file__).parent.parent


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

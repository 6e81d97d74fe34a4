"""One numeric library in a process of its own: its matrix product is made, checked and timed on request.

Run as a script (`python -P worker.py LIBRARY`), so that no thread pool but the library's is in the process: nothing of roofline is
imported, except for the library "roofline". Requests and replies are lines of JSON, on stdin and on what was stdout when the
process began; whatever a library prints goes to stderr. `{"do": "open"}` gives facts, `{"do": "time", "dtype", "size", "threads"
(0: the library's own choice), "seconds"}` gives samples. A reply with the key "error" says why there is none.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SAMPLE_S = 5e-3  # a sample is a batch of at least this length
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-12, "bf16": 1e-2}  # of a sum of positive products, relative
NUMPY_NAMES = {"fp32": "float32", "fp64": "float64"}

Call = Callable[[], Any]
Operands = Callable[[], tuple[Any, Any, Any]]  # a, b and c in fp64, after a call


def pools() -> list[dict[str, Any]]:
    """The BLAS libraries in this process, as threadpoolctl knows them; `file` tells them apart and is not for publication."""
    try:
        found = importlib.import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return []
    keys = ("internal_api", "version", "num_threads", "threading_layer", "architecture")
    return [{key: pool.get(key) for key in keys} | {"file": pool["filepath"]} for pool in found if pool["user_api"] == "blas"]


def built_with(config: Any) -> str:
    """The BLAS that a NumPy or SciPy was built with: "scipy-openblas", "mkl", "blas" (the reference), ..."""
    with contextlib.suppress(Exception):
        return str(config(mode="dicts")["Build Dependencies"]["blas"]["name"])
    return ""


def facts_of(pool: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """What a reply says of a BLAS: what its pool of threads tells, and other known facts."""
    return {
        "blas": pool.get("internal_api") or "unknown",
        "blas_version": pool.get("version") or "",
        "layer": pool.get("threading_layer") or "",
        "kernels": pool.get("architecture") or "",
        "threads": pool.get("num_threads") or 0,
        "build": "",
    } | known


class Library:
    """A session or a device has the threads it was made with: there is nothing to limit."""

    dtypes: tuple[str, ...] = ("fp32", "fp64")
    version = build = ""

    @contextlib.contextmanager
    def limited(self, threads: int) -> Iterator[None]:
        yield


class WithPools(Library):
    """NumPy and SciPy: their BLAS is a shared library that threadpoolctl can ask and limit."""

    others: frozenset[str] = frozenset()  # files of libraries that are not this one's

    def pool(self) -> dict[str, Any]:
        return next((pool for pool in pools() if pool["file"] not in self.others), {})

    @contextlib.contextmanager
    def limited(self, threads: int) -> Iterator[None]:
        if not threads:
            yield
            return
        with importlib.import_module("threadpoolctl").threadpool_limits(threads):
            yield

    def facts(self, dtype: str) -> dict[str, Any]:
        return facts_of(self.pool(), build=self.build)


class Numpy(WithPools):
    def __init__(self) -> None:
        self.numpy = importlib.import_module("numpy")
        self.version, self.build = str(self.numpy.__version__), built_with(self.numpy.show_config)

    def gemm(self, dtype: str, size: int, threads: int) -> tuple[Call, Operands]:
        np = self.numpy
        random = np.random.default_rng(1)
        a, b = (random.random((size, size), dtype=np.float64).astype(NUMPY_NAMES[dtype]) for _ in "ab")
        c = np.zeros_like(a)
        return lambda: np.matmul(a, b, out=c), lambda: tuple(m.astype(np.float64) for m in (a, b, c))


class Scipy(WithPools):
    """BLAS as SciPy calls it, on matrices in column order: a copy in another order would be timed too."""

    def __init__(self) -> None:
        self.numpy = importlib.import_module("numpy")
        numpys = frozenset(pool["file"] for pool in pools())
        self.blas = importlib.import_module("scipy.linalg.blas")
        scipy = importlib.import_module("scipy")
        self.version, self.build = str(scipy.__version__), built_with(scipy.show_config)
        # Wheels bring one BLAS each; a system's packages share one, which is then SciPy's as well.
        self.others = numpys if any(pool["file"] not in numpys for pool in pools()) else frozenset()

    def gemm(self, dtype: str, size: int, threads: int) -> tuple[Call, Operands]:
        np = self.numpy
        random = np.random.default_rng(1)
        a, b = (np.asfortranarray(random.random((size, size)).astype(NUMPY_NAMES[dtype])) for _ in "ab")
        c = np.zeros_like(a)
        product = self.blas.sgemm if dtype == "fp32" else self.blas.dgemm
        call = lambda: product(1.0, a, b, c=c, overwrite_c=1)  # noqa: E731
        return call, lambda: tuple(m.astype(np.float64) for m in (a, b, c))


class Torch(Library):
    dtypes = ("fp32", "fp64", "bf16")

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        self.version = str(self.torch.__version__)
        shown = str(self.torch.__config__.show())
        self.usual = int(self.torch.get_num_threads())
        mkl = re.search(r"Math Kernel Library Version ([\d.]+)", shown)
        named = re.search(r"BLAS_INFO=(\w+)", shown)
        self.blas = ("mkl", mkl[1]) if mkl else ({"open": "openblas"}.get(named[1], named[1]) if named else "unknown", "")
        onednn = re.search(r"MKL-DNN v([\d.]+)", shown)
        self.onednn = onednn[1] if onednn else ""
        capability = getattr(self.torch.backends.cpu, "get_cpu_capability", None)
        self.capability = str(capability()) if capability else ""

    @contextlib.contextmanager
    def limited(self, threads: int) -> Iterator[None]:
        self.torch.set_num_threads(threads or self.usual)
        yield
        self.torch.set_num_threads(self.usual)

    def facts(self, dtype: str) -> dict[str, Any]:
        name, version = ("onednn", self.onednn) if dtype == "bf16" else self.blas
        # Its MKL is linked in, where threadpoolctl cannot look; an OpenBLAS is a file, and NumPy's is not torch's.
        pool = next((p for p in pools() if name == "openblas" and "numpy" not in p["file"]), {})
        build = f"CPU capability {self.capability}" if self.capability else ""
        known = {"blas": name, "blas_version": pool.get("version") or version, "threads": int(self.torch.get_num_threads())}
        return facts_of(pool, **known, build=build)

    def gemm(self, dtype: str, size: int, threads: int) -> tuple[Call, Operands]:
        torch = self.torch
        kind = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}[dtype]
        made = torch.Generator().manual_seed(1)
        a, b = (torch.rand((size, size), generator=made, dtype=torch.float64).to(kind) for _ in "ab")
        c = torch.zeros_like(a)
        return lambda: torch.matmul(a, b, out=c), lambda: tuple(m.double().numpy() for m in (a, b, c))


def field(number: int, payload: bytes | int) -> bytes:
    """One field of a Protocol Buffers message: a varint, or bytes with their length."""

    def varint(value: int) -> bytes:
        encoded = bytearray()
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*encoded, value])

    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def matmul_model(dtype: str, size: int) -> bytes:
    """An ONNX ModelProto of one MatMul, c = a b, all of them inputs and outputs [size, size]. Needs no onnx package."""
    element = {"fp32": 1, "fp64": 11}[dtype]
    shape = field(1, field(1, size)) * 2
    tensor = field(1, element) + field(2, shape)

    def value(name: bytes) -> bytes:
        return field(1, name) + field(2, field(1, tensor))

    node = field(1, b"a") + field(1, b"b") + field(2, b"c") + field(4, b"MatMul")
    graph = field(1, node) + field(2, b"g") + field(11, value(b"a")) + field(11, value(b"b")) + field(12, value(b"c"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))  # IR version 8, operator set 13


class Onnxruntime(Library):
    """Both operands are inputs, so that neither is packed in advance: the same work as for the others."""

    def __init__(self) -> None:
        self.numpy = importlib.import_module("numpy")
        self.ort = importlib.import_module("onnxruntime")
        self.version, self.threads = str(self.ort.__version__), 0

    def facts(self, dtype: str) -> dict[str, Any]:
        return facts_of({}, blas="mlas", threads=self.threads)

    def gemm(self, dtype: str, size: int, threads: int) -> tuple[Call, Operands]:
        np, ort = self.numpy, self.ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        before = tasks()
        session = ort.InferenceSession(matmul_model(dtype, size), options, providers=["CPUExecutionProvider"])
        self.threads = threads or 1 + max(tasks() - before, 0)  # the caller works too
        random = np.random.default_rng(1)
        a, b = (random.random((size, size)).astype(NUMPY_NAMES[dtype]) for _ in "ab")
        held = [ort.OrtValue.ortvalue_from_numpy(m) for m in (a, b, np.zeros_like(a))]
        binding = session.io_binding()
        for name, where in zip("ab", held, strict=False):
            binding.bind_ortvalue_input(name, where)
        binding.bind_ortvalue_output("c", held[2])
        return (lambda: session.run_with_iobinding(binding), lambda: tuple(m.astype(np.float64) for m in (a, b, held[2].numpy())))


class Roofline(Library):
    """The variant `library` of this package, on its own thread pool."""

    dtypes: tuple[str, ...] = ("fp32", "fp64", "bf16")

    def __init__(self) -> None:
        devices = importlib.import_module("roofline.measurement.devices")
        self.tensors = importlib.import_module("roofline.measurement.tensors")
        self.matmul = importlib.import_module("roofline.operators").Matmul
        self.open_device, self.version = devices.open_device, str(devices.build_info()["version"])
        self.plan: dict[str, Any] = {}
        device = self.open_device("cpu")
        self.dtypes = tuple(dtype for dtype in self.dtypes if not device.missing("matmul", "library", dtype))

    def facts(self, dtype: str) -> dict[str, Any]:
        # "library/oneDNN 3.2.0": the library called, and its version
        name, _, version = str(self.plan.get("implementation", "")).rpartition("/")[2].partition(" ")
        kernels, threads = str(self.plan.get("library_implementation", "")), int(self.plan.get("threads", 0))
        return facts_of({}, blas=name.lower() or "unknown", blas_version=version, kernels=kernels, threads=threads)

    def gemm(self, dtype: str, size: int, threads: int) -> tuple[Call, Operands]:
        import numpy as np

        dtypes = importlib.import_module("roofline.dtypes")
        device = self.open_device("cpu", threads)
        problem = self.matmul(rows=size, columns=size, inner=size, dtype=dtype)
        held = self.tensors.allocate_all(device, problem, 1)
        for name in "ab":  # positive, as for the others
            raw = held[name].raw()
            raw[...] = raw & np.uint16(0x7FFF) if raw.dtype == np.uint16 else np.abs(raw)
        bound = self.tensors.bind(device, problem, "library", held)
        self.plan = bound.plan

        def operands() -> tuple[Any, Any, Any]:
            a, b, c = (dtypes.to_float64(held[spec.name].raw(), spec.dtype) for spec in problem.tensors())
            return a, b, c

        return bound.run, operands


LIBRARIES: dict[str, Callable[[], Any]] = {
    "numpy": Numpy, "scipy": Scipy, "torch": Torch, "onnxruntime": Onnxruntime, "roofline": Roofline,
}  # fmt: skip


def tasks() -> int:
    """Threads of this process."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def error_of(a: Any, b: Any, c: Any) -> float:
    """Largest relative error of c x against a (b x), x = (1, 1/2, 1/3, ...): Freivalds' check, in fp64."""
    x = [1 / (1 + i % 97) for i in range(len(b))]
    expected = a @ (b @ x)
    worst = float(abs((c @ x - expected) / expected).max())
    return worst if math.isfinite(worst) else math.inf


class Server:
    def __init__(self, name: str) -> None:
        self.name = name
        self.library: Any = None
        self.bound: tuple[Any, Call, float] | None = None

    def open(self) -> dict[str, Any]:
        self.library = LIBRARIES[self.name]()
        return {"version": self.library.version, "dtypes": list(self.library.dtypes)}

    def time(self, dtype: str, size: int, threads: int, seconds: float) -> dict[str, Any]:
        with self.library.limited(threads):
            if self.bound is None or self.bound[0] != (dtype, size, threads):
                self.bound = None  # its memory is needed
                call, operands = self.library.gemm(dtype, size, threads)
                call()
                self.bound = ((dtype, size, threads), call, error_of(*operands()))
            _, call, error = self.bound
            if error > TOLERANCE[dtype]:
                return {"error": f"a wrong result: relative error {error:.2g}"}
            samples, cpu_s, wall_s = timed(call, seconds)
            facts = self.library.facts(dtype)
        return {"samples_s": samples, "cpu_s": cpu_s, "wall_s": wall_s, **facts}


def timed(call: Call, seconds: float) -> tuple[list[float], float, float]:
    """(seconds per call of every batch, CPU seconds of the process, wall seconds); the first call wakes the threads, unrecorded."""
    begin = time.perf_counter()
    call()
    batch = max(1, math.ceil(SAMPLE_S / max(time.perf_counter() - begin, 1e-7)))
    samples: list[float] = []
    cpu, start = time.process_time(), time.perf_counter()
    while not samples or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        samples.append((time.perf_counter() - begin) / batch)
    return samples, time.process_time() - cpu, time.perf_counter() - start


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = Server(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        work = getattr(server, request.pop("do"))
        try:
            reply = work(**request)
        except (Exception, SystemExit) as error:  # whatever a broken installation raises is its finding
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()

"""Tensors of other libraries: DLPack's structs as its header gives them, by ctypes, on both sides of `run`."""

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import roofline
from roofline import BiasRelu, DeviceArray, Error, Matmul, Relu, ResidualRmsNorm, Unsupported
from roofline.measurement.exchange import look
from roofline.operators import CachedAttention, Embedding, Fma, GroupedMatmul

core = pytest.importorskip("roofline._core", reason="the compiled module does not load")

from roofline.measurement import open_device  # noqa: E402


class View(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Old(ctypes.Structure):
    _fields_ = (("tensor", View), ("context", ctypes.c_void_p), ("deleter", DELETER))


class New(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
        ("flags", ctypes.c_uint64), ("tensor", View),
    )  # fmt: skip


api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = (ctypes.py_object,)
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)

_NAMES = (b"dltensor", b"dltensor_versioned")  # a capsule does not own its name
_USED = (b"used_dltensor", b"used_dltensor_versioned")


class Tensor:
    """A producer over a NumPy array's bits; it says whatever the test wants of device, dtype, strides and flags."""

    def __init__(self, array: Any, dtype: tuple[int, int] = (2, 32), **says: Any) -> None:
        self.array, self.dtype, self.says = array, dtype, says
        self.deleted, self.asked, self.kept = 0, [], []

    def __dlpack_device__(self) -> tuple[int, int]:
        says = self.says.get("device", (1, 0))
        if isinstance(says, Exception):
            raise says
        return says

    def __dlpack__(self, **asked: Any) -> Any:
        if self.says.get("old") and "max_version" in asked:
            raise TypeError("unexpected keyword 'max_version'")
        if "refuses" in self.says:
            raise BufferError(self.says["refuses"])
        self.asked.append(asked)
        shape = (ctypes.c_int64 * self.array.ndim)(*self.says.get("shape", self.array.shape))
        strides = self.says.get("strides", [stride // self.array.itemsize for stride in self.array.strides])
        offset = self.says.get("byte_offset", 0)
        counted = None if strides is None else (ctypes.c_int64 * self.array.ndim)(*strides)
        element = (*self.dtype, self.says.get("lanes", 1))
        view = View(
            self.array.ctypes.data - offset, *self.says.get("capsule_device", self.__dlpack_device__()),
            self.says.get("dimensions", self.array.ndim), *element, shape, counted, offset,
        )  # fmt: skip

        def delete(_: int) -> None:
            self.deleted += 1

        deleter = DELETER(delete)
        version = self.says.get("version", (1, 0))
        made = Old(view, None, deleter) if self.says.get("old") else New(*version, None, deleter, self.says.get("flags", 0), view)
        self.kept += [made, shape, strides, deleter]
        return api.PyCapsule_New(ctypes.addressof(made), _NAMES[isinstance(made, New)], None)


def aligned(shape: Any) -> Any:
    """Zeros that begin on a cache line."""
    size = 4 * int(np.prod(shape))
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("says", [{}, {"strides": None}, {"byte_offset": 64}])
def test_inputs_and_outputs_are_used_where_they_lie(old: bool, says: dict[str, Any]) -> None:
    x, y = np.array([1, -2, 3, -4], dtype=np.float32), np.full(4, 7, dtype=np.float32)
    given, written = Tensor(x, old=old, **says), Tensor(y, old=old, **says)
    found = roofline.run(Relu(elements=4), x=given, y=written)
    assert found["y"] is written
    assert y.tolist() == [1, 0, 3, 0]
    assert x.tolist() == [1, -2, 3, -4]
    gc.collect()
    assert (given.deleted, written.deleted) == (1, 1), "each deleter is called once"
    assert given.asked == [{} if old else {"max_version": (1, 0)}], "without a stream: there is none on the CPU"


def test_no_copy_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are bound at the given addresses, NumPy's too."""
    bound = {}
    import roofline.measurement.running as running

    def spy(device: Any, problem: Any, variant: str, held: Any) -> Any:
        bound.update({name: one.memory.address + one.offset for name, one in held.items()})
        return bind(device, problem, variant, held)

    bind = running.bind
    monkeypatch.setattr(running, "bind", spy)
    x, bias, y = (np.ones(shape, dtype=np.float32) for shape in ((3, 5), (5,), (3, 5)))
    roofline.run(BiasRelu(rows=3, columns=5), device="cpu", x=x, bias=Tensor(bias), y=y)
    assert bound == {"x": x.ctypes.data, "bias": bias.ctypes.data, "y": y.ctypes.data}
    assert (y == 2).all()


def test_the_producer_lives_while_it_is_bound() -> None:
    device = open_device("cpu")
    x, y = Tensor(np.ones(4, dtype=np.float32)), Tensor(np.zeros(4, dtype=np.float32))
    specs = {spec.name: spec for spec in Relu(elements=4).tensors()}
    held = {name: device.core.borrow(core.take(t.__dlpack__()).address, 16, t) for name, t in (("x", x), ("y", y))}
    taken = core.take(x.__dlpack__())
    memory = device.core.borrow(taken.address, 16, taken)
    arguments = [("x", memory, 0, "fp32", [4], [], "in"), ("y", held["y"], 0, "fp32", list(specs["y"].shape), [], "out")]
    bound = device.core.bind("relu", "fused", "fp32", arguments, {"elements": 4})
    before = x.deleted
    del taken, memory, arguments
    gc.collect()
    assert x.deleted == before, "the kernel holds it"
    bound.run()
    assert y.array.tolist() == [1] * 4
    del bound
    gc.collect()
    assert x.deleted == before + 1


def test_a_capsule_is_taken_once() -> None:
    given = Tensor(np.ones(3, dtype=np.float32))
    capsule = given.__dlpack__()
    taken = core.take(capsule)
    assert (taken.shape, taken.strides, taken.dtype, taken.device) == ([3], [1], (2, 32, 1), (1, 0))
    with pytest.raises(Error, match="still to be taken"):
        core.take(capsule)
    with pytest.raises(TypeError):
        core.take(3)
    del taken
    assert given.deleted == 1


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"device": (2, 1)}, "tensor 'x' lies on cuda:1, and the problem runs on cpu.*device='cuda:1'"),
        ({"device": (10, 0)}, "kind 10"),
        ({"dtype": (2, 64)}, "has dtype float64; expected fp32"),
        ({"dtype": (6, 8)}, "has dtype bool"),
        ({"dtype": (1, 32)}, "has dtype uint32"),
        ({"dtype": (9, 8)}, "code 9 of 8 bits"),
        ({"lanes": 4}, "4 lanes"),
        ({"shape": [2]}, r"shape \[2\]; expected fp32 \[4\]"),
        ({"strides": [2]}, "not contiguous"),
        ({"strides": [-1]}, "not contiguous"),
        ({"refuses": "it requires grad"}, "cannot be shared by DLPack: it requires grad"),
        ({"version": (2, 3)}, "DLPack 2.3 is newer"),
        ({"dimensions": -1}, "of -1 dimensions"),
        ({"dimensions": -1, "old": True}, "of -1 dimensions"),
        ({"capsule_device": (2, 0)}, "says that it lies on cpu, and its DLPack capsule on cuda:0"),
        ({"device": None}, "a Tensor does not say by __dlpack_device__ where it lies"),
        ({"device": 5}, "does not say"),
        ({"device": ("x", 0)}, "does not say"),
        ({"device": RuntimeError("lost")}, "does not say.*lost"),
    ],
)
def test_what_does_not_fit_says_so(says: dict[str, Any], words: str) -> None:
    says = dict(says)
    given = Tensor(np.ones(4, dtype=np.float32), says.pop("dtype", (2, 32)), **says)
    with pytest.raises(Error, match=words):
        roofline.run(Relu(elements=4), device="cpu", x=given)
    gc.collect()
    assert given.deleted == (0 if "version" in says or not given.asked else 1)


def test_dtypes_by_their_dlpack_codes() -> None:
    """bf16 and fp8 by their own codes, and as their bits."""
    one = np.full(4, 0x3F80, dtype=np.uint16)
    for code in ((4, 16), (1, 16)):
        spec = SimpleNamespace(name="x", dtype="bf16", shape=(4,))
        assert look(Tensor(one, code), spec, open_device("cpu"), "x").address == one.ctypes.data  # type: ignore[arg-type]
    codes = {"fp8_e4m3": ((10, 8), (1, 8)), "fp8_e5m2": ((12, 8), (1, 8)), "int8": ((0, 8),), "fp16": ((2, 16),)}
    codes["fp8_e8m0"] = ((14, 8), (1, 8))
    for dtype, known in codes.items():
        for code in known:
            spec = SimpleNamespace(name="x", dtype=dtype, shape=(4,))
            given = Tensor(np.zeros(4, np.uint16 if dtype == "fp16" else np.uint8), code)
            assert look(given, spec, open_device("cpu"), "x").address == given.array.ctypes.data  # type: ignore[arg-type]
    pairs = np.zeros((4, 3), dtype=np.uint8)  # two of four bits to a byte, as PyTorch says it, and as their bits
    packed = SimpleNamespace(name="x", dtype="nvfp4", shape=(4, 6))
    for given in (Tensor(pairs, (17, 4), lanes=2), Tensor(pairs, (1, 8)), pairs):
        assert look(given, packed, open_device("cpu"), "x").address == pairs.ctypes.data  # type: ignore[arg-type]
    with pytest.raises(Error, match=r"has shape \[4, 6\]; expected nvfp4 \[4, 6\], two to a byte: \[4, 3\]"):
        look(np.zeros((4, 6), dtype=np.uint8), packed, open_device("cpu"), "x")  # type: ignore[arg-type]
    with pytest.raises(Error, match="has dtype float8_e5m2; expected fp8_e4m3"):
        spec = SimpleNamespace(name="x", dtype="fp8_e4m3", shape=(4,))
        look(Tensor(np.zeros(4, np.uint8), (12, 8)), spec, open_device("cpu"), "x")  # type: ignore[arg-type]


def test_what_is_written_must_be_writable_and_apart() -> None:
    x = np.ones(8, dtype=np.float32)
    with pytest.raises(Error, match="'y' is read-only"):
        roofline.run(Relu(elements=8), x=x, y=Tensor(np.zeros(8, dtype=np.float32), flags=1))
    frozen = np.zeros(8, dtype=np.float32)
    frozen.flags.writeable = False
    with pytest.raises(Error, match="'y' is read-only"):
        roofline.run(Relu(elements=8), x=x, y=frozen)
    assert roofline.run(Relu(elements=8), device="cpu", x=frozen)["y"].tolist() == [0] * 8, "a read-only input will do"
    both = np.ones(12, dtype=np.float32)
    with pytest.raises(Error, match="'y' and 'x' share memory"):
        roofline.run(Relu(elements=8), device="cpu", x=both[:8], y=both[4:])


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize(
    ("problem", "name", "least"),
    [
        (Embedding(tokens=2, vocabulary=3, d_model=4, dtype="fp32"), "ids", 0),
        (CachedAttention(heads=1, kv_heads=1, seq_kv=9, head_dim=4, page_size=3, dtype="fp32", kv_dtype="fp32"), "page_table", 0),
        (CachedAttention(batch=2, heads=1, kv_heads=1, seq_kv=2, shortest=1, dtype="fp32", kv_dtype="fp32"), "lengths", 1),
        (GroupedMatmul(experts=3, experts_per_token=1, d_ff=4, weight_bits=32.0, dtype="fp32", out_dtype="fp32"), "chosen", 0),
    ],
)
def test_indices_out_of_bounds_are_refused(problem: Any, name: str, least: int, index: int) -> None:
    given = {spec.name: np.ones(spec.shape, np.int32 if spec.below else np.float32) for spec in problem.inputs()}
    roofline.run(problem, device="cpu", **given)
    given[name].flat[-1] = index
    with pytest.raises(Error, match=f"tensor '{name}' holds {index}; it must be from {least} to 2"):
        roofline.run(problem, device="cpu", **given)


def test_tensors_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied first, and left alone, unless in_place names them. No CPU kernel updates in place, so one is made up here."""

    def doubling(device: Any, problem: Any, variant: str, held: Any) -> Any:
        def launch() -> None:
            held["residual"].raw()[...] *= 2
            held["y"].raw()[...] = held["residual"].raw()

        return SimpleNamespace(run=launch)

    monkeypatch.setattr("roofline.measurement.running.bind", doubling)
    problem = ResidualRmsNorm(rows=3, columns=8, dtype="fp32")
    specs = {spec.name: spec for spec in problem.tensors()}
    updated = [name for name, spec in specs.items() if spec.role == "in_out"]
    assert updated
    rng = np.random.default_rng(3)
    shapes = {name: spec.shape for name, spec in specs.items() if spec.role != "out"}
    data = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    before = {name: array.copy() for name, array in data.items()}
    found = roofline.run(problem, device="cpu", **data)
    for name, array in data.items():
        assert (array == before[name]).all(), f"{name} stays as it is"
    given = {name: Tensor(array) if name in updated else array for name, array in data.items()}
    again = roofline.run(problem, device="cpu", in_place=updated, **given)
    for name in updated:
        assert again[name] is given[name]
        assert (data[name] == found[name]).all()
        assert (data[name] != before[name]).any()
    with pytest.raises(Error, match="in_place names 'nothing'"):
        roofline.run(problem, device="cpu", in_place="nothing", **data)


def test_alignment() -> None:
    """Vectors that a kernel plans with: an input is copied on the CPU; on a GPU, and where it is written, it is an error."""
    raw = aligned(2 * 4096 + 1)
    x = raw[1 : 1 + 4096]
    problem = Fma(chains=4096, steps=1)
    specs = {spec.name: spec for spec in problem.tensors()}
    reads = {name: x for name, spec in specs.items() if spec.role != "out"}
    assert roofline.run(problem, device="cpu", **reads)
    written = next(name for name, spec in specs.items() if spec.role == "out")
    with pytest.raises(Error, match=f"{written!r} begins at 0x.*64 bytes"):
        roofline.run(problem, device="cpu", **reads, **{written: raw[4097:]})
    assert roofline.run(Relu(elements=5), device="cpu", x=raw[3:8])["y"].tolist() == [0] * 5


def test_other_borders() -> None:
    with pytest.raises(Error, match="unknown tensor 'z'; it has x, y"):
        roofline.run(Relu(elements=4), z=np.ones(4))
    with pytest.raises(Error, match="is a list; expected fp32 .* __dlpack__"):
        roofline.run(Relu(elements=4), device="cpu", x=[1.0])
    with pytest.raises(Error, match="lie on several devices .x on cuda:0, y on cpu."):
        one = np.ones(4, dtype=np.float32)
        roofline.run(Relu(elements=4), x=Tensor(one, device=(2, 0)), y=Tensor(one))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    eye, b = np.eye(2, dtype=ml_dtypes.bfloat16), np.ones((2, 2), dtype=ml_dtypes.bfloat16)
    try:
        out = roofline.run(Matmul(rows=2, columns=2, inner=2, dtype="bf16"), device="cpu", a=eye, b=b)["c"]
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert np.asarray(out).size == 4


# -- what a GPU would be asked; its memory is the host's here ----------------------------------------------------------------


class Gpu(SimpleNamespace):
    """A device that only writes down what it is asked."""

    def __init__(self, place: str = "cuda:0") -> None:
        self.asked: list[Any] = []
        asked = SimpleNamespace(stream=77, wait_for=self.asked.append, place_of=lambda address: place)
        super().__init__(name="cuda:0", backend="cuda", core=asked)


FOUR = SimpleNamespace(name="x", dtype="fp32", shape=(4,))


def test_dlpack_producers_are_given_our_stream() -> None:
    given = Tensor(np.ones(4, dtype=np.float32), device=(2, 0))
    found = look(given, FOUR, Gpu(), "x")  # type: ignore[arg-type]
    assert given.asked == [{"max_version": (1, 0), "stream": 77}]
    assert (found.place, found.address) == ("cuda:0", given.array.ctypes.data)
    assert look(Tensor(given.array, device=(13, 0)), FOUR, Gpu(), "x").place == "cuda:0", "managed memory"  # type: ignore[arg-type]
    with pytest.raises(Error, match="lies on cpu, and the problem runs on cuda:0"):
        look(Tensor(given.array), FOUR, Gpu(), "x")  # type: ignore[arg-type]


def interface(**changes: Any) -> Any:
    stated = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None, "stream": None}
    return SimpleNamespace(__cuda_array_interface__={**stated, **changes})


def test_cuda_array_interface() -> None:
    for stream, waits in ((None, []), (1, [1]), (2, [2]), (0x7F00, [0x7F00])):
        gpu = Gpu()
        found = look(interface(stream=stream), FOUR, gpu, "x")  # type: ignore[arg-type]
        assert (found.address, found.read_only, gpu.asked) == (4096, False, waits)
    assert look(interface(strides=(4,), data=(4096, True)), FOUR, Gpu(), "x").read_only  # type: ignore[arg-type]
    bits = SimpleNamespace(name="x", dtype="bf16", shape=(4,))
    assert look(interface(typestr="<u2"), bits, Gpu(), "x").dtype == "uint16"  # type: ignore[arg-type]
    for changes, words in (
        ({"stream": 0}, "stream 0"),
        ({"strides": (8,)}, "not contiguous"),
        ({"strides": (6,)}, "not whole elements"),
        ({"typestr": ">f4"}, "has dtype >f4"),
        ({"typestr": "|b1"}, "has dtype bool"),
        ({"mask": object()}, "mask"),
        ({"shape": (2, 2)}, "shape"),
    ):
        with pytest.raises(Error, match=words):
            look(interface(**changes), FOUR, Gpu(), "x")  # type: ignore[arg-type]
    with pytest.raises(Error, match="lies on cuda:1, and the problem runs on cuda:0"):
        look(interface(), FOUR, Gpu("cuda:1"), "x")  # type: ignore[arg-type]
    with pytest.raises(Error, match="lies on a GPU, and the problem runs on cpu"):
        roofline.run(Relu(elements=4), device="cpu", x=interface())


# -- results -------------------------------------------------------------------------------------------------------------------


def made(dtype: str = "fp32", values: Any = (1, 2, 3, 4, 5, 6)) -> DeviceArray:
    device = open_device("cpu")
    data = np.asarray(values, dtype={"fp32": np.float32, "bf16": np.uint16, "fp8_e4m3": np.uint8}[dtype])
    memory = device.core.memory(data.nbytes)
    memory.write(data)
    return DeviceArray(device, memory, (2, 3), dtype)


def test_a_result_is_shared_and_outlives_its_array() -> None:
    array = made()
    assert repr(array) == "DeviceArray(fp32 [2, 3] on cpu)"
    assert (np.asarray(array) == [[1, 2, 3], [4, 5, 6]]).all()
    shared = np.from_dlpack(array)
    assert shared.__array_interface__["data"][0] == array._memory.address
    copied = np.from_dlpack(array, copy=True)
    del array
    gc.collect()
    assert shared.tolist() == copied.tolist() == [[1, 2, 3], [4, 5, 6]]


def struct_of(capsule: Any) -> Any:
    name = api.PyCapsule_GetName(capsule)
    kind = New if name == b"dltensor_versioned" else Old
    return kind.from_address(api.PyCapsule_GetPointer(capsule, name))


@pytest.mark.parametrize(("dtype", "code"), [("fp32", (2, 32)), ("bf16", (4, 16)), ("fp8_e4m3", (10, 8))])
def test_its_capsules_are_what_the_header_says(dtype: str, code: tuple[int, int]) -> None:
    array = made(dtype)
    for asked, kind in (({}, Old), ({"max_version": (0, 8)}, Old), ({"max_version": (1, 1)}, New)):
        capsule = array.__dlpack__(**asked)  # type: ignore[arg-type]
        struct = struct_of(capsule)
        assert isinstance(struct, kind)
        view = struct.tensor
        assert (view.data, view.device_type, view.device_id, view.byte_offset) == (array._memory.address, 1, 0, 0)
        assert (view.ndim, view.shape[:2], view.strides[:2]) == (2, [2, 3], [3, 1])
        assert (view.code, view.bits, view.lanes) == (*code, 1)
        if kind is New:
            assert (struct.major, struct.flags) == (1, 0)
            # A consumer: renames the capsule, and calls the deleter when it is done.
            api.PyCapsule_SetName(capsule, _USED[1])
            del capsule
            struct.deleter(ctypes.addressof(struct))
    copied = array.__dlpack__(max_version=(1, 0), copy=True)
    assert struct_of(copied).flags == 2
    assert struct_of(copied).tensor.data != array._memory.address
    with pytest.raises(BufferError, match="not copied to"):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        array.__dlpack__(stream=1)
    assert not hasattr(array, "__cuda_array_interface__")


def test_results_on_a_gpu_order_the_consumers_stream() -> None:
    signals: list[int] = []
    lent = SimpleNamespace(dlpack=lambda *what: what, address=4096, read=lambda into: into.fill(3))
    gpu = SimpleNamespace(name="cuda:1", backend="cuda", core=SimpleNamespace(signal=signals.append))
    array = DeviceArray(gpu, lent, (2,), "bf16")  # type: ignore[arg-type]
    for stream in (None, 1, 2, 0x7F00, -1):
        assert array.__dlpack__(stream=stream, max_version=(1, 0)) == (0, [2], (4, 16), (2, 1), True, False)
    assert signals == [1, 1, 2, 0x7F00]
    with pytest.raises(BufferError, match="ambiguous"):
        array.__dlpack__(stream=0)
    capsule = array.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    on_host = struct_of(capsule)
    assert (on_host.tensor.device_type, on_host.flags) == (1, 2)
    assert (ctypes.c_uint16 * 2).from_address(on_host.tensor.data)[:] == [3, 3]
    with pytest.raises(BufferError, match="copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    assert array.__cuda_array_interface__ == {
        "shape": (2,), "typestr": "<u2", "data": (4096, False), "strides": None, "version": 3, "stream": None,
    }  # fmt: skip


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.tensor([1.0, -2.0, 3.0]), torch.empty(3)
    assert roofline.run(Relu(elements=3), x=x, y=y)["y"] is y
    assert y.tolist() == [1, 0, 3]
    with pytest.raises(Error, match="requires grad|require gradient"):
        roofline.run(Relu(elements=3), x=x.requires_grad_())
    assert torch.from_dlpack(made()).tolist() == [[1, 2, 3], [4, 5, 6]]

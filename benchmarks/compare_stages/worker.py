"""python -m compare_stages.worker KIND THREADS: one side of benchmarks/compare_cpu, in a process of its own."""

import sys

from .serving import Side, serve


def side(kind: str, threads: int) -> Side:
    if kind in ("ours", "library"):
        from .ours import Ours

        return Ours(threads, "" if kind == "ours" else kind)
    if kind == "numpy":
        from .numpy_side import NumPy

        return NumPy(threads)
    if kind == "ggml":
        from .ggml_side import Ggml

        return Ggml(threads)
    if kind == "onnxruntime":
        from .onnx_side import Onnx

        return Onnx(threads)
    from .torch_side import Torch

    return Torch(threads, compiled=kind == "compiled")


if __name__ == "__main__":
    serve(lambda: side(sys.argv[1], int(sys.argv[2])))

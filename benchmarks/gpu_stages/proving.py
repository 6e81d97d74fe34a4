"""Stages: the tests on the GPU, and a memory and race checker over every kernel."""

import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from .running import Done, Failed, Run, Unavailable, Unfinished, tool

# Each process has a GPU context of its own, and a kernel that breaks it takes only that process's tests with it.
MOST_PROCESSES = 8
KEPT_EACH = 18_000  # characters of each checker's log


def tests(run: Run) -> dict[str, Any]:
    run.installed()
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    spread = ["-n", str(processes), "--dist", "worksteal"] if importlib.util.find_spec("xdist") else []
    # Verbose: what has failed is then told at once, and known of a run that is ended too. Warnings of the packages that happen to
    # be there, and of a plugin for benchmarks about being run in several processes, are no failures.
    lenient = ["-W", "default", "-p", "no:benchmark", "-p", "no:cacheprovider"]
    done = run.command(
        sys.executable, "-m", "pytest", "-v", *lenient, "--continue-on-collection-errors", "--require-gpu", "-m", "gpu",
        "--tb=short", *spread, "tests",
    )  # fmt: skip
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped|deselected)\b", done.stdout[-400:])
    }
    found = {**counts, "failures": [run.scrub(line) for line in failures(done.stdout)]}
    if done.timed_out and not found["failures"]:
        raise Unfinished("pytest ran past the stage's time limit, without a failure until then", done.log, found)
    if done.timed_out or done.code != 0 or not counts.get("passed"):
        why = "ran past the stage's time limit" if done.timed_out else f"ended with {done.code}"
        raise Failed(f"pytest {why}: {counts or 'no result line'}", done.log, found)
    return found


def failures(printed: str) -> list[str]:
    """Lines of pytest's summary that name failures; where it was ended before, those of its progress."""
    told = re.findall(r"^(?:FAILED|ERROR) .*", printed, re.MULTILINE)
    spread = re.findall(r"^\[gw\d+\] \[ *\d+%\] (?:FAILED|ERROR) (.*)", printed, re.MULTILINE)
    return told or spread or re.findall(r"^(tests/.*) (?:FAILED|ERROR) +\[", printed, re.MULTILINE)


# Every kernel's first small problem, then every second one, until the time is up: a checker slows kernels down a hundredfold.
# Libraries' kernels come last.
SMALL = """
import sys, time
from roofline.errors import OutOfMemory, Unsupported
from roofline.measurement import open_device
from roofline.measurement.tensors import allocate_all, bind, check
from roofline.operators import OPERATORS
begun, device, ran, wrong, skipped, ranked = time.monotonic(), open_device("cuda:0"), 0, [], {}, []
for operator in OPERATORS.values():
    for variant, declared in operator.variants.items():
        for dtype in declared.dtypes.get("cuda", ()):
            problems = [c.problem for c in operator.cases() if not c.slow and getattr(c.problem, "dtype", "fp32") == dtype]
            theirs = variant in ("library", "fast_accumulation")
            ranked += [(theirs, rank, variant, problem) for rank, problem in enumerate(problems)]
ranked.sort(key=lambda item: item[:2])
for _, rank, variant, problem in ranked:
    if time.monotonic() - begun > float(sys.argv[1]):
        break
    try:
        tensors = allocate_all(device, problem, 7)
        bound = bind(device, problem, variant, tensors)
    except (Unsupported, OutOfMemory) as reason:
        skipped[f"{problem.name} {variant}"] = str(reason)
        continue
    bound.run()
    report = check(problem, tensors, 7)
    ran += 1
    if not report["passed"]:
        wrong.append(f"{problem.name} {variant}: {report['reason']}")
print("problems run:", ran, "of", len(ranked), "up to rank", rank)
print("wrong:", wrong)
print("skipped:", skipped)
"""

# One access past the end, which memcheck must find: a checker that finds nothing anywhere proves nothing.
PLANTED = """
__global__ void past_the_end(int* p) { p[threadIdx.x + 1024] = 1; }
int main() {
  int* p;
  if (cudaMalloc(&p, 1024 * sizeof(int)) != cudaSuccess) return 3;
  past_the_end<<<1, 32>>>(p);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
"""


def _planted(run: Run, checker: str) -> str:
    """The log of the checker over a program with a fault. Raises Unavailable where it does not find it."""
    with tempfile.TemporaryDirectory() as scratch:
        source, program = Path(scratch, "planted.cu"), Path(scratch, "planted")
        source.write_text(PLANTED)
        if run.command(tool("nvcc"), "-arch=native", source, "-o", program).code != 0:
            raise Unavailable("the program with a planted fault does not compile")
        log = run.command(checker, "--tool", "memcheck", program).log
    if "Invalid __global__ write" not in log:
        run.keep("sanitizer.txt", log)
        raise Unavailable("compute-sanitizer does not work here: it does not find a planted fault; see sanitizer.txt")
    return log


def _checked(run: Run, checker: str, name: str, share: float) -> tuple[dict[str, Any], Done]:
    """One tool over the small problems, in `share` of the time that is left: two thirds of it for launching them."""
    limit_s = share * run.left_s()
    # NCCL asks for kernels of architectures that it was not built for, and takes the error as the answer. racecheck does not know
    # bar.arrive: it calls a small program of the PTX ISA's producer-consumer pattern a race, and the kernel built on that pattern.
    own = ["--report-api-errors", "no"] if name == "memcheck" else ["--kernel-name-exclude", "kns=latent_kernel"]
    done = run.command(
        checker, "--tool", name, *own, "--error-exitcode", "9", sys.executable, "-c", SMALL, str(0.67 * limit_s), limit_s=limit_s
    )
    # Errors alone: racecheck's one warning on an H200 was between an mbarrier's initialisation and its first use.
    found = re.search(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: .*\()(\d+)", done.log)
    ran = re.search(r"problems run: (\d+) of (\d+)", done.stdout)
    wrong = re.search(r"^wrong: (.*)$", done.stdout, re.MULTILINE)
    skipped = re.search(r"^skipped: (.*)$", done.stdout, re.MULTILINE)
    return {
        "found": int(found[1]) if found else None,
        "problems_run": int(ran[1]) if ran else 0,
        "problems": int(ran[2]) if ran else 0,
        "wrong": wrong[1] if wrong else "",
        "skipped": skipped[1] if skipped else "",
        "timed_out": done.timed_out,
    }, done


def sanitizer(run: Run) -> dict[str, Any]:
    run.installed()
    checker = tool("compute-sanitizer")
    log = _planted(run, checker)
    results: dict[str, Any] = {"planted fault": "found"}
    for name, share in (("memcheck", 0.5), ("racecheck", 1.0)):  # what one finds must not hide what the other finds
        results[name], done = _checked(run, checker, name, share)
        log += f"\n{name}\n{done.log[-KEPT_EACH:]}"
        run.keep("sanitizer.txt", log)
    bad = [
        f"{name} {'did not finish' if seen['found'] is None or not seen['problems_run'] else 'found ' + str(seen['found'])}"
        for name in ("memcheck", "racecheck")
        if (seen := results[name])["found"] != 0 or not seen["problems_run"] or seen["wrong"] not in ("", "[]")
    ]
    if bad:
        raise Failed(f"{'; '.join(bad)}; see sanitizer.txt", found=results)
    return results

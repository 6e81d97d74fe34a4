"""What every test shares: markers with reasons, the backend's state in the header, and no file left behind."""

import functools
import gc
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

# No time limit per example: a busy machine is no reason to fail. The same examples every time in CI.
settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail, rather than skip, GPU tests where there is no GPU")
    parser.addoption("--mutations", type=int, metavar="N", help="mutated files of each kind that is read (default: a few)")
    parser.addoption("--slow", action="store_true", help="run the slow tests too (many gigabytes, minutes)")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in a shell's background: the programs under test would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes where everything is run on CPUs; one for a part, for wall time, and where the tests share a GPU."""
    part = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("-m") or config.getoption("-k")
    if part or config.getoption("usepdb") or len(os.sched_getaffinity(0)) < 2 or not _gpu_missing():
        config.option.dist = "no"
        return 0
    return 2


def _gpu_missing() -> str:
    try:
        from roofline.measurement import list_devices

        devices = list_devices()
    except Exception as error:
        return str(error)
    if any(d["name"].startswith("cuda") and not d["missing"] for d in devices):
        return ""
    return next((d["missing"] for d in devices if d["name"].startswith("cuda")), "no CUDA device")


def pytest_report_header(config: pytest.Config) -> str:
    try:
        from roofline.measurement import build_info, list_devices, open_device

        states = [f"{d['name']}: {d['missing'] or d['summary']}" for d in list_devices()]
        cpu = open_device("cpu")
        return f"roofline {build_info()['version']}: {cpu.title} ({cpu.facts['isas']}); " + "; ".join(states)
    except Exception as error:
        return f"roofline: the compiled module does not load: {error}"


class Left(pytest.Item):
    """One skipped test that stands for the tests of a module that do not run here."""

    def __init__(self, *, reason: str, **options: Any) -> None:
        super().__init__(**options)
        self.reason = reason

    def runtest(self) -> None:
        raise pytest.skip.Exception(self.reason, _use_item_location=True)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        return self.path, 0, self.name


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked, without = config.getoption("-m") or "", {}
    if "timing" not in asked:
        without["timing"] = "asserts wall time: run it with -m timing on an idle machine"
    if "slow" not in asked and not config.getoption("--slow"):
        without["slow"] = "takes minutes or many gigabytes: run it with --slow"
    if not config.getoption("--require-gpu") and any("gpu" in item.keywords for item in items) and (missing := _gpu_missing()):
        without["gpu"] = missing
    left: dict[tuple[pytest.Item, str], list[pytest.Item]] = {}
    for item in items:
        if mark := next((mark for mark in without if item.get_closest_marker(mark)), ""):
            left.setdefault((item.getparent(pytest.Module), mark), []).append(item)
    for (module, mark), those in left.items():
        reason = f"{without[mark]}: {len(those)} {'case' if len(those) == 1 else 'cases'} not collected"
        items[items.index(those[0])] = Left.from_parent(module, name=mark, reason=reason)
        gone = set(those[1:])
        items[:] = [item for item in items if item not in gone]


def pytest_collection() -> None:
    """Thousands of tests are made now, and stay to the end: there is no garbage yet."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor need anyone look for garbage among the tests and what they imported; and little of what figures make is garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (missing := _gpu_missing()):
        pytest.fail(f"--require-gpu: {missing}", pytrace=False)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A lost GPU context fails all later tests of its process: end the process, and let xdist begin another."""
    lost = call.excinfo and "the GPU's context is lost" in str(call.excinfo.value)
    if lost and "PYTEST_XDIST_WORKER" in os.environ:
        print(f"{item.nodeid}: {call.excinfo and call.excinfo.value}", file=sys.stderr, flush=True)
        os._exit(70)


@functools.cache
def _opened_on_own_core(name: str, threads: int) -> Any:
    from roofline.measurement.devices import Device

    return Device(name, threads)


@contextmanager
def own_core() -> Iterator[None]:
    """A core for this test process, which its programs inherit, and devices of their own.

    Threads on all cores, in two processes, spend most of their time on waiting for threads that the other process has displaced.
    """
    from roofline.measurement import devices

    cores = sorted(os.sched_getaffinity(0))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(devices, "_opened", _opened_on_own_core)
        os.sched_setaffinity(0, {cores[worker % len(cores)]})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


@pytest.fixture(autouse=True)
def cores(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of several test processes has a core, except for tests of what several threads do."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ or request.node.get_closest_marker("all_cores")
    with nullcontext() if alone else own_core():
        yield


@contextmanager
def small() -> Iterator[None]:
    """Arrays and products that are checked in milliseconds, configurations found in one launch of each, no time for a core to find
    its clock, and no roof measured twice."""
    from roofline.measurement import devices, probing
    from roofline.probes import DEPTHS, bandwidth, products
    from roofline.units import MIB

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(devices, "_opened", functools.lru_cache(devices.Device))
        patched.setattr(bandwidth, "DRAM_ARRAY_BYTES", dict.fromkeys((*DEPTHS, "report"), 16 * MIB))
        patched.setattr(products, "SQUARES", (256, 64))
        patched.setattr(probing, "ROUNDS", 1)
        patched.setattr(probing, "CALIBRATION_S", 0.0)
        patched.setattr("roofline.ceilings.measuring.WARM_S", 0.0)
        patched.setattr("roofline.ceilings.measuring.in_another_state", lambda *given: False)
        yield


@pytest.fixture(scope="session")
def small_machines() -> Callable[..., Any]:
    """`small`, for fixtures that last longer than a test."""
    return small


@pytest.fixture
def small_probes() -> Iterator[None]:
    """Small probes on a device that has no others, of one core, whose last cache nobody measures: for what a measurement does,
    whatever it finds."""
    with own_core(), small(), pytest.MonkeyPatch.context() as patched:
        patched.setattr("roofline.ceilings.measuring.last_cache_share", lambda device: None)
        yield


@pytest.fixture(scope="session")
def benchmarks() -> Iterator[Callable[[str], ModuleType]]:
    """benchmarks("peers_cpu"), benchmarks("gpu_stages.tables"): a program of benchmarks/, or a module beside it."""
    folder = Path(__file__).resolve().parent.parent / "benchmarks"

    @functools.cache
    def module(name: str) -> ModuleType:
        if not (folder / name).is_file():
            return importlib.import_module(name)
        loader = importlib.machinery.SourceFileLoader(name, str(folder / name))
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec
        made = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
        loader.exec_module(made)
        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        patched.setattr(sys, "dont_write_bytecode", True)
        yield module


class Command:
    """Runs of `roofline` that end as they should, and what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def out(self, arguments: Sequence[str], *, code: int = 0) -> str:
        return self._ran(arguments, code)[0]

    def json(self, arguments: Sequence[str], *, code: int = 0) -> Any:
        return json.loads(self.out([*arguments, "--json"], code=code))

    def refused(self, arguments: Sequence[str], *, code: int = 2) -> str:
        """The error: one line, and nothing on stdout."""
        self.capsys.readouterr()
        out, err = self._ran(arguments, code)
        assert not out, "nothing was printed, so nothing was measured"
        assert err.count("\n") == 1 and err.startswith("roofline: error: ") and len(err) < 1500, err
        return err

    def _ran(self, arguments: Sequence[str], code: int) -> tuple[str, str]:
        from roofline.cli import main

        assert main(arguments) == code
        return self.capsys.readouterr()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="session", name="schema")
def validators() -> Callable[[str], Any]:
    """schema("machine"): what validates files of that kind."""
    from roofline.schemas import schema

    jsonschema = pytest.importorskip("jsonschema", reason="validates files against their schemas")

    def of(kind: str) -> Any:
        found = schema(kind)
        jsonschema.Draft202012Validator.check_schema(found)
        assert f'"schema_version": {{"const": {found["$id"].rpartition(":")[2]}' in json.dumps(found)
        return jsonschema.Draft202012Validator(found)

    return of


def assert_closed(check: Any, written: Any, *holders: dict[str, Any]) -> None:
    """What the code does not write is refused in each holder, and every key it writes is required."""
    for holder in holders:
        for key, value in list(holder.items()):
            del holder[key]
            assert not check.is_valid(written), key
            holder[key] = value
        holder["extra"] = 1
        assert not check.is_valid(written)
        del holder["extra"]
    assert list(check.iter_errors(written)) == []


@pytest.fixture(scope="session")
def closed() -> Callable[..., None]:
    return assert_closed


@pytest.fixture
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures in PNG have an eighth of their pixels: for what does not look at them."""
    monkeypatch.setattr("roofline.plot.figure.DPI", 72)


@pytest.fixture
def nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plots come without a window, and leave no figure behind."""
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("plt.show was called")

    monkeypatch.setattr(plt, "show", refuse)
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, with what its console says."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="the browser's driver needs selenium")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium and chromium-driver (Debian) are not installed")
    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    options.binary_location = programs[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()

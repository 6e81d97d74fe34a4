"""What every test shares: markers with reasons, the backend's state in the header, and no file left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

# No time limit per example: a busy machine is no reason to fail. The same examples every time in CI.
settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail, rather than skip, GPU tests where there is no GPU")
    parser.addoption("--slow", action="store_true", help="run the slow tests too (many gigabytes, minutes)")


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.getoption("-m") or ""
    for item in items:
        if "timing" in item.keywords and "timing" not in asked:
            item.add_marker(pytest.mark.skip(reason="asserts wall time: run it with -m timing on an idle machine"))
        if "slow" in item.keywords and not config.getoption("--slow") and "slow" not in asked:
            item.add_marker(pytest.mark.skip(reason="takes minutes or many gigabytes: run it with --slow"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "gpu" in item.keywords and (missing := _gpu_missing()):
        if item.config.getoption("--require-gpu"):
            pytest.fail(f"--require-gpu: {missing}", pytrace=False)
        pytest.skip(missing)


@pytest.fixture
def nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plots come without a window, and leave no figure behind."""
    from matplotlib import pyplot as plt

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("plt.show was called")

    monkeypatch.setattr(plt, "show", refuse)
    yield
    plt.close("all")


@pytest.fixture
def reported() -> Callable[..., Any]:
    """reported("cuda:0", sms=132): a device that is not there, only what it says of itself."""
    from roofline.measurement.arena import arena_bytes
    from roofline.measurement.devices import Device

    class Reported(Device):
        def __init__(self, name: str = "cpu", **facts: Any) -> None:
            self.name, self.facts, self.roofs, self.kernels = name, facts, {}, []
            self.threads = int(facts.get("threads", 1)) if name == "cpu" else 0
            self.arena_bytes = arena_bytes(int(facts.get("memory_bytes", 2**34)))

    return Reported

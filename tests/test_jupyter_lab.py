"""Explorers in a real Jupyter Lab: a slider that is moved in Chromium moves the point, and says what `predict` says."""

import base64
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from programs import PYTHONPATH
from shown import eventually

from roofline.interactive import Explorer, explore, explore_model

pytestmark = pytest.mark.slow

TOKEN = "roofline"
WAIT_S = 120  # for what takes seconds on an idle machine
CELLS = (
    'from roofline.interactive import explore, explore_model\nexplore(["H100", "A100"])',
    'explore_model("H100", ["Llama-3-8B", "Llama-3-70B"], batch=8)',
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a notebook of both explorers, in a server of its own folders."""
    for name in ("jupyterlab", "ipywidgets"):
        pytest.importorskip(name, reason=f"Jupyter Lab with sliders needs {name}: pip install 'roofline[notebook,widgets]'")
    nbformat = pytest.importorskip("nbformat", reason="writing notebooks needs nbformat")
    root = tmp_path_factory.mktemp("lab")
    own = {name: str(root / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
                                               "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")}  # fmt: skip
    own["PYTHONPATH"] = PYTHONPATH
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS], metadata={"kernelspec": spec})
    (root / "books").mkdir()
    nbformat.write(book, root / "books" / "explorers.ipynb")
    address = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser", "--ip=127.0.0.1",
               f"--port={address.rpartition(':')[2]}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
               f"--ServerApp.root_dir={root / 'books'}", "--LabApp.news_url=None"]  # fmt: skip
    with (root / "log").open("w") as log, subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log) as server:
        try:
            began = time.monotonic()
            while not answers(f"{address}/api/status?token={TOKEN}"):
                assert server.poll() is None and time.monotonic() - began < WAIT_S, (root / "log").read_text()[-4000:]
                time.sleep(0.2)
            yield f"{address}/lab/tree/explorers.ipynb?token={TOKEN}"
        finally:
            server.terminate()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture(scope="module")
def run(browser: Any, lab: str) -> Callable[..., Any]:
    """The page after its cells ran: run(script) hands back what a script returns."""
    size = {"width": 1400, "height": 2400, "deviceScaleFactor": 1, "mobile": False}  # cells out of sight are not rendered
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(lab)
    eventually(browser, "return Boolean(window.jupyterapp && document.querySelector('.jp-Notebook .jp-CodeCell'))")
    idle = "return jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    eventually(browser, idle)
    browser.execute_script("jupyterapp.commands.execute('notebook:run-all-cells')")
    eventually(browser, "return [...document.querySelectorAll('img.widget-image')].filter(e => e.naturalWidth > 100).length === 2")
    return browser.execute_script  # type: ignore[no-any-return]


def picture(browser: Any, index: int) -> bytes:
    """The file that the browser shows as the picture of an explorer."""
    text = browser.execute_async_script(
        """const done = arguments[1], image = document.querySelectorAll('img.widget-image')[arguments[0]];
        fetch(image.src).then(r => r.arrayBuffer()).then(b => done(btoa(String.fromCharCode(...new Uint8Array(b)).toString())))""",
        index,
    )
    return base64.b64decode(text)


def said(run: Callable[..., Any], index: int) -> str:
    """Its rows, as `Explorer.text` has them."""
    script = """const rows = document.querySelectorAll('.widget-html-content table')[arguments[0]].querySelectorAll('tbody tr');
        return [...rows].map(row => [...row.cells].map(cell => cell.textContent).join(' ')).join('; ')"""
    return str(run(script, index))


@pytest.mark.parametrize(
    "index, twin, control, keys",
    [
        (0, lambda: explore(["H100", "A100"]), "seq_q", "END"),
        (1, lambda: explore_model("H100", ["Llama-3-8B", "Llama-3-70B"], batch=8), "batch", "ARROW_RIGHT"),
    ],
    ids=["operator", "model"],
)
def test_a_slider_moves_what_is_shown(
    browser: Any, run: Callable[..., Any], index: int, twin: Callable[[], Explorer], control: str, keys: str
) -> None:
    from selenium.webdriver.common.keys import Keys

    expected = twin()
    before, shown = expected.text, picture(browser, index)
    assert said(run, index) == before and shown == bytes(expected._image.value)
    handles = """const boxes = [...document.querySelectorAll('.widget-slider, .widget-hslider')];
        const own = boxes.filter(box => box.querySelector('.widget-label')?.textContent === arguments[0]);
        return own[arguments[1]].querySelector('.noUi-handle')"""
    handle = run(handles, control, index if control == "batch" else 0)
    run("arguments[0].scrollIntoView({block: 'center'})", handle)
    handle.send_keys(getattr(Keys, keys))
    options = list(expected.controls[control].options)
    at = options.index(expected.controls[control].value)
    expected.controls[control].value = options[-1 if keys == "END" else at + 1]
    assert expected.text != before
    words = expected.text.split("; ")
    gone = dict(zip([word.split(" ")[0] for word in words], zip(before.split("; "), words, strict=True), strict=True))
    for name in ("time", "tokens" if index == 0 else "pace", "bound" if index == 0 else "intensity"):
        assert gone[name][0] != gone[name][1], name
    eventually(browser, """const rows = document.querySelectorAll('.widget-html-content table')[arguments[0]];
        return rows && rows.textContent.includes(arguments[1])""", index, words[1].partition(" ")[2])  # fmt: skip
    assert said(run, index) == expected.text
    began = time.monotonic()
    while picture(browser, index) != bytes(expected._image.value):
        assert time.monotonic() - began < WAIT_S
        time.sleep(0.1)


def test_the_console_holds_no_error(browser: Any, run: Callable[..., Any]) -> None:
    found = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [text for text in found if "/lsp/status" not in text] == []
    assert run('return document.querySelectorAll(\'[data-mime-type*="stderr"], [data-mime-type*="error"]\').length') == 0

"""Progress of long work: a bar on stderr in terminals and in Jupyter, a callback, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ..errors import Error

ProgressOption = bool | Callable[[int, int, str], None] | None


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython")
    current = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return type(current).__name__ == "ZMQInteractiveShell"


class Progress:
    """`with Progress(option, total) as progress: progress.step(label)` before each of `total` pieces of work.

    option: None shows a bar only in a terminal or Jupyter, True always, False never; a callable gets (done, total, label).
    total may grow meanwhile.
    """

    def __init__(self, option: ProgressOption, total: int) -> None:
        if option is not None and not isinstance(option, bool) and not callable(option):
            raise Error(f"progress must be None, True, False or a callable(done, total, label), got {option!r:.80}")
        self.total, self.done = total, -1
        self._callback = option if callable(option) else None
        self._bar: Any = None
        if option is True or (option is None and (sys.stderr.isatty() or _in_jupyter())):
            from tqdm.auto import tqdm  # type: ignore[import-untyped]

            self._bar = tqdm(total=total, file=sys.stderr, leave=False, dynamic_ncols=True, unit="point")

    def step(self, label: str) -> None:
        """The next piece of work begins."""
        self.done += 1
        if self._callback:
            self._callback(self.done, self.total, label)
        if self._bar is not None:
            self._bar.n, self._bar.total = self.done, self.total
            self._bar.set_description_str(label)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._callback:
            self._callback(self.total, self.total, "done")
        if self._bar is not None:
            self._bar.close()

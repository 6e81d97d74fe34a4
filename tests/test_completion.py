"""Shell completion: the script is one that a shell reads, and it completes commands, operators and flags."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ASKED = {
    "roofline pre": {"predict"},
    "roofline predict --mach": {"--machine"},
    "roofline run atten": {"attention", "attention_backward"},
    "roofline run attention --seq": {"--seq-q", "--seq-kv", "--seq-len"},
    "roofline completion ": {"bash", "zsh", "tcsh"},
}


def test_bash_completes(tmp_path: Path, cli: Any) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    (tmp_path / "script").write_text(cli.out(["completion", "bash"]))
    lines = [f"source '{tmp_path / 'script'}'"]
    for line in ASKED:
        words = [word or "''" for word in line.split(" ")]
        lines += [f"COMP_WORDS=({' '.join(words)})", f"COMP_CWORD={len(words) - 1}", "COMPREPLY=()"]
        lines += ["_shtab_roofline", 'echo "${COMPREPLY[*]}"']
    done = subprocess.run([bash, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    found = done.stdout.splitlines()
    assert [set(line.split()) for line in found] == list(ASKED.values()), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(shell: str, cli: Any) -> None:
    script = cli.out(["completion", shell])
    assert "roofline" in script and "predict" in script
    assert cli.json(["completion", shell]) == {"shell": shell, "script": script.removesuffix("\n")}

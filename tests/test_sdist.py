"""The source archive holds what is in the repository, nothing less and nothing more."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from programs import git

ROOT = Path(__file__).parent.parent

# Written by the build backend.
ADDED = {"PKG-INFO"}


def test_the_archive_is_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("scikit_build_core.build", reason="building a source archive needs scikit-build-core")
    tracked = set(git("ls-files").splitlines())
    # A copy of what is tracked: files lying about in the working tree say nothing about a release.
    source = tmp_path / "source"
    for name in tracked:
        if not (ROOT / name).exists():
            continue  # deleted here, not yet committed
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    tracked = {name for name in tracked if os.path.lexists(source / name)}
    monkeypatch.chdir(source)
    archive = tmp_path / build.build_sdist(str(tmp_path))
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames() if not opened.getmember(name).isdir()}
    missing, extra = sorted(tracked - names), sorted(names - tracked - ADDED)
    assert not missing, f"not in the archive: {missing}"
    assert not extra, f"in the archive, and not in the repository: {extra}"


def test_nothing_ignored_is_tracked() -> None:
    ignored = git("ls-files", "--cached", "--ignored", "--exclude-standard").splitlines()
    assert not ignored, "tracked files that .gitignore names would be missing from the archive"

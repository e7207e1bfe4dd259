"""Files of results that hold records of several runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.environment import CHANGED, commit
from benchmarks.results import Results, load

MACHINE = {"device": "Test GPU", "torch": "2.11.0"}


def run(path: Path, number: int, *cases: str) -> Results:
    """Keeps what the file has, as --resume does."""
    environment = MACHINE | {"date": f"2026-11-0{number}", "commit": f"abc{number}"}
    results = Results("depthwise", environment, f"run {number}", {})
    results.keep(path)
    for case in cases:
        results.add({"case": case, "chosen_by": "auto"})
    results.write(path)
    return load(path)


def taken(results: Results) -> dict[str, str]:
    return {str(record["case"]): results.taken(record) for record in results.records.values()}


def test_records_say_of_which_run_they_are(tmp_path: Path) -> None:
    path = tmp_path / "depthwise.json"
    assert run(path, 1, "a", "b").origin() == "by `run 1` (2026-11-01, commit abc1)"
    assert run(path, 2, "b", "c").origin() == (
        "3 records: 1 by `run 1` (2026-11-01, commit abc1); 2 by `run 2` (2026-11-02, commit abc2)"
    )
    run(path, 3)  # adds nothing
    results = run(path, 4, "d")
    assert [each.command for each in results.all_runs] == ["run 1", "run 2", "run 4"]
    first, second, last = (f"2026-11-0{number}, commit abc{number}" for number in (1, 2, 4))
    assert taken(results) == {"a": first, "b": second, "c": second, "d": last}


def test_files_from_before_there_were_runs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "depthwise.json"
    run(path, 1, "a")
    data: dict[str, Any] = json.loads(path.read_text())
    assert data["records"][0].pop("run") == 0 and "runs" not in data
    path.write_text(json.dumps(data))
    old = load(path)
    assert old.origin().startswith("last by `run 1` (2026-11-01, commit abc1); records of earlier runs may")
    results = run(path, 2, "b")
    assert taken(results) == {"a": "2026-11-01, commit abc1, or before", "b": "2026-11-02, commit abc2"}
    before = "1 by `run 1` (2026-11-01, commit abc1) or earlier runs"
    assert results.origin() == f"2 records: {before}; 1 by `run 2` (2026-11-02, commit abc2)"


def test_a_commit_says_where_code_was_changed(tmp_path: Path) -> None:
    """But not where a run before wrote results or pages."""

    def git(*arguments: str) -> str:
        known = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *known, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert commit(tmp_path) is None
    git("init", "--quiet")
    written = ("benchmarks/results/some-gpu/depthwise.json", "benchmarks/papers/page.md", "README.md")
    for name in (*written, "code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    revision = git("rev-parse", "HEAD")[:12]
    assert commit(tmp_path) == revision
    for name in written:
        (tmp_path / name).write_text("after")
    (tmp_path / "notes.txt").touch()
    assert commit(tmp_path) == revision
    (tmp_path / "code.py").write_text("after")
    assert commit(tmp_path) == revision + CHANGED == f"{revision}+"

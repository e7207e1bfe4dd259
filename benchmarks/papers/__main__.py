"""Writes the papers' pages and README's lines on them: `python -m benchmarks.papers` (--check compares)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.cuconv import page as cuconv
from benchmarks.papers.depthwise_separable import page as depthwise_separable
from benchmarks.papers.hntmp import page as hntmp
from benchmarks.papers.measurements import machines
from benchmarks.papers.row_and_column_reuse import page as row_and_column_reuse
from benchmarks.papers.text import Page
from benchmarks.papers.verdicts import in_short
from benchmarks.results import README, RESULTS, between

FOLDER = Path(__file__).resolve().parent
BEGIN, END = "<!-- papers: written by python -m benchmarks.papers -->", "<!-- papers: end -->"


def pages(results: Path = RESULTS) -> list[Page]:
    found = list(machines(results))
    return [page(found) for page in (cuconv, hntmp, depthwise_separable, row_and_column_reuse)]


def stale(written: Sequence[Page], folder: Path) -> list[str]:
    """Files that are not what the pages say, and pictures that no page shows."""
    pictures = folder / "pictures"
    texts = {folder / f"{page.stem}.md": page.text for page in written}
    found = [path.name for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    drawn = [picture for page in written for picture in page.pictures]
    found += [f"{picture.name}.svg" for picture in drawn if not picture.is_drawn(pictures)]
    names = {f"{picture.name}.svg" for picture in drawn}
    return found + [path.name for path in pictures.glob("*") if path.name not in names]


def write(written: Sequence[Page], folder: Path) -> None:
    pictures = folder / "pictures"
    names = {f"{picture.name}.svg" for page in written for picture in page.pictures}
    for path in pictures.glob("*.svg"):
        if path.name not in names:
            path.unlink()
    for page in written:
        (folder / f"{page.stem}.md").write_text(page.text)
        for picture in page.pictures:
            if not picture.is_drawn(pictures):
                picture.draw(pictures)


def readme(written: Sequence[Page]) -> str:
    """README.md with a line for each paper."""
    lines = [
        f"- [{page.parts[0]}](benchmarks/papers/{page.stem}.md): {in_short(page.text)}." for page in written
    ]
    return between(README.read_text(), BEGIN, END, "\n".join(lines))


def main(arguments: Sequence[str]) -> int:
    written = pages()
    if arguments == ["--check"]:
        names = stale(written, FOLDER)
        names += [] if README.read_text() == readme(written) else [README.name]
        for name in names:
            print(f"{name} does not show the committed results: run python -m benchmarks.papers")
        return int(bool(names))
    write(written, FOLDER)
    README.write_text(readme(written))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

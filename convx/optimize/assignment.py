"""Which of two layouts each stretch of a chain is to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Both = tuple[float, float]  # of either layout


@dataclass(frozen=True)
class Assignment:
    """A layout, 0 or 1, for each stretch, and what all takes."""

    layouts: tuple[int, ...]
    us: float

    @property
    def changes(self) -> list[int]:
        """The stretches behind which the layout is another."""
        pairs = zip(self.layouts, self.layouts[1:], strict=False)
        return [place for place, (before, after) in enumerate(pairs) if before != after]


def cheapest(costs: Sequence[Both], leaving: Sequence[Both]) -> Assignment:
    """Of all assignments, by dynamic programming; of those that take as long one with few changes.

    costs: of each stretch in either layout. leaving: what it takes to leave either for the other one, behind
    each stretch but the last.
    """
    best = costs[0]
    before: list[tuple[int, int]] = []  # the stretch before has this layout, for either of the next
    for own, leave in zip(costs[1:], leaving, strict=True):
        changed = (best[1] + leave[1], best[0] + leave[0])
        came = tuple(1 - to if changed[to] < best[to] else to for to in (0, 1))
        before.append((came[0], came[1]))
        best = (min(best[0], changed[0]) + own[0], min(best[1], changed[1]) + own[1])
    layouts = [0 if best[0] <= best[1] else 1]
    for came in reversed(before):
        layouts.append(came[layouts[-1]])
    return Assignment(tuple(reversed(layouts)), min(best))

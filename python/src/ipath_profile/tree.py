"""Paths as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, List, Optional, Tuple


@dataclass
class Node:
    """A function on the way, with what the paths through it add up to."""

    name: str
    calls: int = 0
    #: The sum of the metric that was asked for, in its unit; the calls where none was.
    value: int = 0
    children: Dict[str, "Node"] = field(default_factory=dict)

    def walk(self) -> Iterator[Tuple[int, "Node"]]:
        """All nodes with their depths, costliest branches first, without this one's parents."""
        stack: List[Tuple[int, Node]] = [(0, self)]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack.extend((depth + 1, child) for child in sorted(node.children.values(), key=lambda c: c.value))

    def text(self, min_share: float = 0.01, depth: Optional[int] = None) -> str:
        """Lines with % of value, calls and name, indented; branches below ``min_share`` of the whole are left out."""
        whole = self.value or 1
        lines = []
        hidden: Optional[int] = None
        for level, node in self.walk():
            if hidden is not None and level > hidden:
                continue
            hidden = None
            share = node.value / whole
            if level and (share < min_share or (depth is not None and level > depth)):
                hidden = level
                continue
            lines.append(f"{100 * share:6.1f} % {node.calls:>12}  {'  ' * level}{node.name}")
        return "\n".join(lines)

    def show(self, min_share: float = 0.01, depth: Optional[int] = None) -> None:
        """Prints :meth:`text`."""
        print(self.text(min_share, depth))


def tree_of(walks: Iterable[Tuple[List[str], int, int]]) -> Node:
    """The tree of these paths, each with its calls and its value; its root is named ``all``."""
    root = Node("all")
    for names, calls, value in walks:
        node = root
        node.calls += calls
        node.value += value
        for name in names:
            node = node.children.setdefault(name, Node(name))
            node.calls += calls
            node.value += value
    return root

"""Trees of call paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, List, Optional, Tuple


@dataclass
class Node:
    """A function in a tree, with the totals of all paths through it."""

    #: The name of the function.
    name: str
    #: The number of calls.
    calls: int = 0
    #: The sum of the tree's metric, in its unit. The number of calls if the tree has no metric.
    value: int = 0
    #: The next functions on the paths, by name.
    children: Dict[str, "Node"] = field(default_factory=dict)

    def walk(self) -> Iterator[Tuple[int, "Node"]]:
        """Iterate over this node and its descendants in preorder, costliest child first.

        Yields
        ------
        depth : int
            The distance from this node.
        node : Node
            The node at that depth.
        """
        stack: List[Tuple[int, Node]] = [(0, self)]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack.extend((depth + 1, child) for child in sorted(node.children.values(), key=lambda c: c.value))

    def text(self, min_share: float = 0.01, depth: Optional[int] = None) -> str:
        """Format the tree as text.

        Each line has the percentage of this node's value, the calls, and the name, indented by
        depth.

        Parameters
        ----------
        min_share : float
            Omit branches below this fraction of this node's value.
        depth : int, optional
            Omit nodes at a greater distance from this node. By default there is no limit.
        """
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
        """Print :meth:`text`."""
        print(self.text(min_share, depth))


def tree_of(walks: Iterable[Tuple[List[str], int, int]]) -> Node:
    """Build a tree from paths.

    Parameters
    ----------
    walks : iterable of (list of str, int, int)
        Per path: the names from the root of the tree outwards, the calls, and the value.

    Returns
    -------
    Node
        The root, named ``all``.
    """
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

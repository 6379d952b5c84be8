"""A profile, and its tables."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import pandas as pd

from .names import demangled
from .tree import Node, tree_of

SCHEMA = "ipath-profile/1"
#: What each timer, counter and value has as columns where it has been measured.
NUMBERS = ("sum", "min", "max", "outermost", "exclusive")

#: Stand for the callers that are not known: in general, and on paths beyond the limit of paths.
CALLERS_UNKNOWN = "[callers unknown]"
CALLERS_BEYOND_LIMIT = "[callers unknown: --max-paths reached; see --collapse-recursion]"
CALLERS_WITHOUT_ROOM = "[callers unknown: no room for their paths; see --collapse-recursion]"


class ProfileError(ValueError):
    """What was read is no profile that this package knows."""


@dataclass(frozen=True)
class Frame:
    """A call site, or a function that has been inlined there."""

    #: The function's name, demangled if possible; ``module+0xADDR`` if it has none.
    function: str
    #: The file name of its module, empty where that is not known.
    module: str
    file: Optional[str] = None
    line: Optional[int] = None
    #: True of an inlined copy.
    inlined: bool = False
    #: The linkage (mangled) name, empty if there is none.
    linkage: str = ""

    def __str__(self) -> str:
        return self.function


class Profile:
    """What one session has measured.

    Attributes:
        data: the file itself, as ``json`` reads it.
        units: the unit of each metric by name (``calls``, ``ns``, ...).
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema != SCHEMA:
            shown = "no schema" if schema is None else f"the schema {schema!r}"
            raise ProfileError(f"not a profile: it has {shown}, not {SCHEMA!r}")
        self.data = data
        self.units: Dict[str, str] = {m["name"]: m["unit"] for m in data["metrics"]}
        self._modules = [os.path.basename(m["path"]) for m in data["modules"]]
        self._names = demangled(data)
        self._frames = [self._expanded(frame) for frame in data["frames"]]

    @property
    def metrics(self) -> List[str]:
        """The names of the metrics besides ``count``."""
        return [name for name in self.units if name != "count"]

    @property
    def labels(self) -> Dict[str, str]:
        """Labels of the process (``rank`` and others)."""
        return dict(self.data["target"].get("labels", {}))

    @property
    def elapsed_ns(self) -> int:
        """How long the session has lasted, in ns."""
        return int(self.data["session"]["elapsed_ns"])

    @property
    def losses(self) -> Dict[str, Any]:
        """What the profile lacks: calls missed, incomplete paths and their causes."""
        return dict(self.data["losses"])

    def is_whole(self) -> bool:
        """True if no call was lost and every path is complete to its root."""
        losses = self.losses
        return not any(losses.get(kind) for kind in ("missed", "overflow", "incomplete", "unseen"))

    def _module(self, index: Optional[int]) -> str:
        return "" if index is None else self._modules[index]

    def _expanded(self, frame: Mapping[str, Any]) -> Tuple[Frame, ...]:
        module = self._module(frame.get("module"))
        inlined = [
            Frame(self._shown(i.get("function")) or "?", module, i.get("file"), i.get("line"), True, i.get("function") or "")
            for i in frame.get("inlined", ())
        ]
        linkage = frame.get("function") or ""
        own = self._shown(linkage) or f"{module}+{frame['address']:#x}"
        return (*inlined, Frame(own, module, frame.get("file"), frame.get("line"), False, linkage))

    def _shown(self, linkage: Optional[str]) -> str:
        return self._names.get(linkage, linkage) if linkage else ""

    def frame_name(self, index: int) -> str:
        """The name of a frame by its index; ``module+0xADDR`` where it has none."""
        return self._frames[index][-1].function

    def stack(self, path: int, inlined: bool = True) -> List[Frame]:
        """The callers of a path, the nearest first; the function itself is not among them."""
        frames = (f for index in self.data["paths"][path]["stack"] for f in self._frames[index])
        return [frame for frame in frames if inlined or not frame.inlined]

    def function_name(self, index: int) -> str:
        """The demangled name of a function by its index."""
        return str(self.data["functions"][index]["name"])

    def functions(self) -> pd.DataFrame:
        """A row a function: name, module, count, and for each metric ``METRIC_sum`` and so on."""
        rows = []
        for function in self.data["functions"]:
            row = {
                "function": function["name"],
                "linkage": function["linkage"],
                "module": self._module(function["module"]),
                "tail": function.get("tail", 0),
            }
            row.update(self._numbers(function["totals"]))
            rows.append(row)
        return self._table(rows, ["function", "linkage", "module", "tail"])

    def paths(self, metric: Optional[str] = None, inlined: bool = True) -> pd.DataFrame:
        """A row a call path, indexed by its place in the file.

        Args:
            metric: the paths are sorted by this metric's sum, costliest first; by count where it is None.
            inlined: True if functions that have been inlined at a call site are callers as well.
        """
        rows = []
        for index, entry in enumerate(self.data["paths"]):
            row = {
                "function": self.function_name(entry["function"]),
                "stack": tuple(str(frame) for frame in self.stack(index, inlined)),
                "thread": entry.get("thread"),
                "complete": entry["complete"],
                "unwound": entry.get("unwound", 0),
                "open": entry.get("open", 0),
                "tail": entry.get("tail", 0),
            }
            row.update(self._numbers(entry["metrics"]))
            rows.append(row)
        known = ["function", "stack", "thread", "complete", "unwound", "open", "tail"]
        table = self._table(rows, known)
        by = "count" if metric is None else f"{self._known(metric)}_sum"
        return table.sort_values(by, ascending=False, kind="stable")

    def _known(self, metric: str) -> str:
        if metric not in self.metrics:
            raise ProfileError(f"no metric {metric!r}: there are {', '.join(self.metrics) or 'none'}")
        return metric

    def _numbers(self, counts: Mapping[str, Any]) -> Dict[str, Any]:
        numbers: Dict[str, Any] = {"count": counts["count"]}
        for metric in self.metrics:
            stats = counts.get(metric) or {}
            for number in NUMBERS:
                numbers[f"{metric}_{number}"] = stats.get(number)
        return numbers

    def _table(self, rows: Sequence[Mapping[str, Any]], known: Sequence[str]) -> pd.DataFrame:
        numbers = [f"{metric}_{number}" for metric in self.metrics for number in NUMBERS]
        table = pd.DataFrame(list(rows), columns=[*known, "count", *numbers])
        # A number that no row has is no column.
        return table.drop(columns=[name for name in numbers if table[name].isna().all()])

    def histogram(self, path: int, metric: str = "wall") -> pd.DataFrame:
        """How the values of a path are distributed: columns ``low`` and ``high`` (values from ``low`` to below
        ``high``, in the metric's unit) and ``count``. Buckets are powers of two."""
        stats = self.data["paths"][path]["metrics"].get(self._known(metric)) or {}
        rows = [(-(2 ** (k + 1)) + 1, -(2**k) + 1, n) for k, n in reversed(stats.get("hist_negative", []))]
        # The first bucket has 0 as well as 1.
        rows += [(0 if k == 0 else 2**k, 2 ** (k + 1), n) for k, n in stats.get("hist", [])]
        return pd.DataFrame(rows, columns=["low", "high", "count"])

    def tree(self, function: Optional[str] = None, metric: Optional[str] = None, top_down: bool = False) -> Node:
        """The paths as a tree: from the functions to their callers, or, ``top_down``, from the roots of the stacks.

        Args:
            function: only paths of this function (its demangled name or one of its linkage names).
            metric: what the nodes' values are sums of; counts where it is None.
        """
        if metric is not None:
            self._known(metric)
        chosen = [
            index
            for index, of in enumerate(self.data["functions"])
            if function is None or function in (of["name"], of["linkage"], *of.get("aliases", ()))
        ]
        if function is not None and not chosen:
            raise ProfileError(f"no function {function!r} in the profile")
        return tree_of(self._walks(frozenset(chosen), metric, top_down))

    def _without_path(self) -> str:
        by = set(self.data["losses"].get("overflow_by", ()))
        is_limit = not by or by & {"max-paths", "segment-full"}
        return CALLERS_BEYOND_LIMIT if is_limit else CALLERS_WITHOUT_ROOM

    def _walks(
        self, functions: "frozenset[int]", metric: Optional[str], top_down: bool
    ) -> Iterator[Tuple[List[str], int, int]]:
        for index, entry in enumerate(self.data["paths"]):
            if entry["function"] not in functions:
                continue
            names = [self.function_name(entry["function"]), *map(str, self.stack(index))]
            if not entry["complete"]:
                names.append(CALLERS_UNKNOWN if entry["stack"] else self._without_path())
            calls = int(entry["metrics"]["count"])
            stats = entry["metrics"].get(metric) if metric else None
            value = calls if metric is None else int((stats or {}).get("sum", 0))
            yield (names[::-1] if top_down else names), calls, value


def load(file: Union[str, "os.PathLike[str]"]) -> Profile:
    """Reads a profile.

    Raises:
        OSError: the file cannot be read.
        ProfileError: it is no profile, or of a schema that is not known.
    """
    with open(file, encoding="utf-8") as stream:
        try:
            data = json.load(stream)
        except ValueError as cause:
            raise ProfileError(f"{os.fspath(file)}: not a profile: {cause}") from cause
    try:
        return Profile(data)
    except (KeyError, TypeError, IndexError) as cause:
        raise ProfileError(f"{os.fspath(file)}: not a whole profile: {cause!r}") from cause

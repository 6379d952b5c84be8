"""Profiles and their tables."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import pandas as pd

from .names import demangled
from .tree import Node, tree_of

#: The only schema that this package reads.
SCHEMA = "ipath-profile/1"
#: The numbers that tables show per metric, as columns ``METRIC_NUMBER``.
NUMBERS = ("sum", "min", "max", "outermost", "exclusive")

#: Replaces unknown callers in trees.
CALLERS_UNKNOWN = "[callers unknown]"
#: Replaces the callers of calls beyond the maximum number of paths.
CALLERS_BEYOND_LIMIT = "[callers unknown: --max-paths reached; see --collapse-recursion]"
#: Replaces the callers of calls whose paths had no room for another reason.
CALLERS_WITHOUT_ROOM = "[callers unknown: no room for their paths; see --collapse-recursion]"


class ProfileError(ValueError):
    """The input is not a profile of a known schema, or lacks the requested metric or function."""


@dataclass(frozen=True)
class Frame:
    """A call site in a caller, or a function that was inlined at that call site."""

    #: The name of the function, demangled if possible. ``module+0xADDR`` if it has no name, and
    #: ``?`` for an inlined function without a name.
    function: str
    #: The file name of the module without its folder. Empty if the module is not known.
    module: str
    #: The source file. None if it is not known.
    file: Optional[str] = None
    #: The line of the call in `file`. None if it is not known.
    line: Optional[int] = None
    #: True if the function was inlined into the next frame.
    inlined: bool = False
    #: The linkage (mangled) name. Empty if there is none.
    linkage: str = ""

    def __str__(self) -> str:
        return self.function


class Profile:
    """The measurements of one session.

    Parameters
    ----------
    data : mapping
        The contents of a file, as ``json.load`` returns them.

    Attributes
    ----------
    data : mapping
        The contents of the file.
    units : dict of str to str
        The unit (``calls``, ``ns``, ...) of each metric by name, ``count`` included.

    Raises
    ------
    ProfileError
        The schema of `data` is not ``ipath-profile/1``.
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
        """The names of all metrics except ``count``, in the order of the file."""
        return [name for name in self.units if name != "count"]

    @property
    def labels(self) -> Dict[str, str]:
        """The labels of the process, such as its MPI ``rank``."""
        return dict(self.data["target"].get("labels", {}))

    @property
    def elapsed_ns(self) -> int:
        """The duration of the session, in nanoseconds."""
        return int(self.data["session"]["elapsed_ns"])

    @property
    def losses(self) -> Dict[str, Any]:
        """Numbers of missed calls and incomplete paths, with their causes."""
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
        """The name of the frame at `index`, demangled if possible.

        ``module+0xADDR`` if it has no name.
        """
        return self._frames[index][-1].function

    def stack(self, path: int, inlined: bool = True) -> List[Frame]:
        """Return the callers of a path, nearest first.

        The measured function itself is not included.

        Parameters
        ----------
        path : int
            The index of the path in the file, as in :meth:`paths`.
        inlined : bool
            True to include the functions that were inlined at call sites.

        Raises
        ------
        IndexError
            There is no such path.
        """
        frames = (f for index in self.data["paths"][path]["stack"] for f in self._frames[index])
        return [frame for frame in frames if inlined or not frame.inlined]

    def function_name(self, index: int) -> str:
        """The demangled name of the function at `index`."""
        return str(self.data["functions"][index]["name"])

    def functions(self) -> pd.DataFrame:
        """Return the totals of each function.

        Returns
        -------
        pandas.DataFrame
            One row per function, in the order of the file. Columns:

            ``function``, ``linkage``, ``module``
                The demangled name, the linkage name, and the file name of the module.
            ``tail``
                Calls that left by a tail call. Their times exclude the callee.
            ``count``
                Calls.
            ``METRIC_sum``, ``METRIC_min``, ``METRIC_max``
                For each metric, in its unit.
            ``METRIC_outermost``
                The part of the sum from calls that are not nested in a call of the same function.
            ``METRIC_exclusive``
                The part of the sum outside of nested calls of measured functions.

            Numbers that no row has are not columns. A number that one row lacks is NaN.
        """
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
        """Return the numbers of each call path, costliest path first.

        Parameters
        ----------
        metric : str, optional
            The table is sorted by the sum of this metric. By default by the number of calls.
        inlined : bool
            True to include the functions that were inlined at call sites in ``stack``.

        Returns
        -------
        pandas.DataFrame
            One row per path. The index is the position of the path in the file. Columns:

            ``function``, ``stack``
                The name of the function, and a tuple with the names of its callers, nearest first.
            ``thread``
                The thread. None if the paths of threads are not kept apart.
            ``complete``
                True if the path reaches the root of the stack.
            ``unwound``, ``open``
                Calls that ended by an exception or longjmp, and calls that are still running.
            ``tail``, ``count``, ``METRIC_sum``, ...
                As in :meth:`functions`.

        Raises
        ------
        ProfileError
            The profile does not have `metric`.
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
        # Drop numbers that no row has.
        return table.drop(columns=[name for name in numbers if table[name].isna().all()])

    def histogram(self, path: int, metric: str = "wall") -> pd.DataFrame:
        """Return the distribution of the values of a path.

        Parameters
        ----------
        path : int
            The index of the path in the file, as in :meth:`paths`.
        metric : str
            The metric whose values are counted.

        Returns
        -------
        pandas.DataFrame
            One row per bucket, ascending. ``count`` is the number of values ``v`` with
            ``low <= v < high``, in the unit of the metric. Buckets are powers of two. The table is
            empty if the path has no values.

        Raises
        ------
        ProfileError
            The profile does not have `metric`.
        IndexError
            There is no such path.
        """
        stats = self.data["paths"][path]["metrics"].get(self._known(metric)) or {}
        rows = [(-(2 ** (k + 1)) + 1, -(2**k) + 1, n) for k, n in reversed(stats.get("hist_negative", []))]
        # The first bucket holds 0 and 1.
        rows += [(0 if k == 0 else 2**k, 2 ** (k + 1), n) for k, n in stats.get("hist", [])]
        return pd.DataFrame(rows, columns=["low", "high", "count"])

    def tree(self, function: Optional[str] = None, metric: Optional[str] = None, top_down: bool = False) -> Node:
        """Return the paths as a tree.

        Parameters
        ----------
        function : str, optional
            Include only paths of this function: its demangled name, its linkage name or an alias.
            By default the paths of all functions.
        metric : str, optional
            The values of nodes are sums of this metric, in its unit. By default numbers of calls.
        top_down : bool
            False for a tree from the functions to their callers. True for a tree from the roots of
            the stacks to the functions.

        Returns
        -------
        Node
            The root of the tree, named ``all``.

        Raises
        ------
        ProfileError
            The profile does not have `metric` or `function`.
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
    """Read a profile.

    Parameters
    ----------
    file : str or os.PathLike
        A file that ``ipath ... -o FILE`` wrote.

    Returns
    -------
    Profile
        The measurements of the session.

    Raises
    ------
    OSError
        The file cannot be read.
    ProfileError
        The file is not a complete profile, or its schema is not known.
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

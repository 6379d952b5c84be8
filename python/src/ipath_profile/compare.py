"""Comparison of two profiles by call path."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import pandas as pd

from .profile import Profile
from .statistics import Distribution, adjusted, p_of_means

Key = Tuple[str, bool, Tuple[str, ...]]


@dataclass
class _Side:
    """One call path in one of the two profiles."""

    function: str
    stack: Tuple[str, ...]
    calls: int = 0
    total: int = 0
    values: Distribution = field(default_factory=Distribution)


def _build_ids(profile: Profile) -> Set[str]:
    return {m["build_id"] for m in profile.data["modules"] if m.get("build_id")}


def _sites(profile: Profile, common: Set[str]) -> Tuple[List[str], List[str]]:
    """Return keys of all functions and of all frames, in the order of the file.

    Equal keys mean the same code in both profiles. The key is the address if both profiles have the
    file (``common`` contains its build ID), and the name otherwise.
    """

    def address(module: Optional[int], at: int) -> Optional[str]:
        build_id = None if module is None else profile.data["modules"][module].get("build_id")
        return f"\0{build_id}\0{at:x}" if build_id in common else None

    def function(of: Mapping[str, Any]) -> str:
        there = address(of["module"], of["address"])
        at = there or of["linkage"] or of["name"]
        copy = of.get("inlined_copy")
        if of.get("point"):
            return f"{at}\0point"
        if copy is not None:
            return f"{at}\0copy\0{copy['entry']:x}" if there else f"{at}\0copy\0{copy['within']}"
        parts = [part for part in ("loop", "timed_paths") if of.get(part)]
        return "\0".join([str(at), *parts])

    def frame(index: int, of: Mapping[str, Any]) -> str:
        at = address(of.get("module"), of["address"])
        if at is None:
            return of.get("function") or profile.frame_name(index)
        parts = [f"{part} {of[part]}" for part in ("copy", "path") if of.get(part) is not None]
        return "\0".join([at, *parts])

    functions = [function(of) for of in profile.data["functions"]]
    return functions, [frame(index, of) for index, of in enumerate(profile.data["frames"])]


def _sides(profile: Profile, metric: Optional[str], common: Set[str]) -> Tuple[Dict[Key, _Side], Set[str]]:
    """Return the paths of a profile by key, and the keys of the measured functions."""
    functions, frames = _sites(profile, common)
    found: Dict[Key, _Side] = {}
    for index, entry in enumerate(profile.data["paths"]):
        key = (functions[entry["function"]], bool(entry["complete"]), tuple(frames[f] for f in entry["stack"]))
        if key not in found:
            stack = tuple(str(frame) for frame in profile.stack(index))
            found[key] = _Side(profile.function_name(entry["function"]), stack)
        side = found[key]
        side.calls += int(entry["metrics"]["count"])
        stats = entry["metrics"].get(metric) if metric is not None else None
        if stats is not None:
            side.total += int(stats["sum"])
            side.values.add(stats)
    return found, set(functions)


def diff(old: Profile, new: Profile, metric: Optional[str] = None) -> pd.DataFrame:
    """Compare two profiles, one row per call path.

    Paths are matched and means are tested as ``ipath diff`` does. The threads of a path are added
    up. Sums and means are in the unit of the metric.

    Parameters
    ----------
    old, new : Profile
        The profiles to compare.
    metric : str, optional
        The metric to compare. By default the first metric of `new` that `old` also has. ``count``
        compares the numbers of calls alone.

    Returns
    -------
    pandas.DataFrame
        The paths of both profiles. The largest change of the sum comes first, in either direction.
        Paths whose function was measured in only one profile come last. Columns:

        ``function``, ``stack``
            The name of the function, and a tuple with the names of its callers, nearest first.
        ``old_count``, ``new_count``
            Calls. NaN if the profile does not have the path.
        ``old_measured``, ``new_measured``
            False if the profile did not measure the function at all.

        If there is a metric to compare, also:

        ``old_sum``, ``new_sum``, ``old_mean``, ``new_mean``
            The sum and the mean of all values of the path. NaN if the profile does not have the
            path.
        ``ratio``
            ``new_mean / old_mean``. NaN if ``old_mean`` is 0.
        ``p_value_alone``
            The probability that chance alone moves the means of this path at least this far apart.
            NaN if either side has fewer than two values or the values are not known well enough.
        ``p_value``
            ``p_value_alone``, adjusted for the number of paths by Holm's method.

    Raises
    ------
    ProfileError
        One of the profiles does not have `metric`.
    """
    by_count = metric == "count"
    if by_count:
        metric = None
    elif metric is not None:
        old._known(metric)
        new._known(metric)
    else:
        metric = next((m for m in new.metrics if m in old.metrics), None)
    common = _build_ids(old) & _build_ids(new)
    before, of_old = _sides(old, metric, common)
    after, of_new = _sides(new, metric, common)
    rows: List[Dict[str, object]] = []
    alone: List[float] = []
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        shown = b or a
        assert shown is not None
        row: Dict[str, object] = {
            "function": shown.function,
            "stack": shown.stack,
            "old_count": a.calls if a else math.nan,
            "new_count": b.calls if b else math.nan,
            "old_measured": key[0] in of_old,
            "new_measured": key[0] in of_new,
        }
        if metric is not None:
            old_mean = a.values.mean if a else math.nan
            new_mean = b.values.mean if b else math.nan
            row["old_sum"] = a.total if a else math.nan
            row["new_sum"] = b.total if b else math.nan
            row["old_mean"], row["new_mean"] = old_mean, new_mean
            row["ratio"] = new_mean / old_mean if old_mean else math.nan
            alone.append(p_of_means(a.values, b.values) if a and b else math.nan)
        rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    if metric is None:
        return _by_change(table, "count") if by_count else table
    table["p_value_alone"], table["p_value"] = alone, adjusted(alone)
    return _by_change(table, "sum")


def _by_change(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sort paths by the size of their change.

    Paths whose function was measured in only one profile come last, as in ``ipath diff``.
    """
    change = (table[f"new_{column}"].fillna(0) - table[f"old_{column}"].fillna(0)).abs()
    change[~(table["old_measured"] & table["new_measured"])] -= change.max() + 1
    return table.loc[change.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)

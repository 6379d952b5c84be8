"""Two profiles, path by path."""

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
    """What one of the profiles has of a path."""

    function: str
    stack: Tuple[str, ...]
    calls: int = 0
    total: int = 0
    values: Distribution = field(default_factory=Distribution)


def _build_ids(profile: Profile) -> Set[str]:
    return {m["build_id"] for m in profile.data["modules"] if m.get("build_id")}


def _sites(profile: Profile, common: Set[str]) -> Tuple[List[str], List[str]]:
    """Functions and frames, the same text for the same code in both: by address if the files are the same, else by name."""

    def address(module: Optional[int], at: int) -> Optional[str]:
        build_id = None if module is None else profile.data["modules"][module].get("build_id")
        return f"\0{build_id}\0{at:x}" if build_id in common else None

    def function(of: Mapping[str, Any]) -> str:
        at = address(of["module"], of["address"]) or of["linkage"] or of["name"]
        return f"{at}\0point" if of.get("point") else str(at)

    def frame(index: int, of: Mapping[str, Any]) -> str:
        return address(of.get("module"), of["address"]) or of.get("function") or profile.frame_name(index)

    functions = [function(of) for of in profile.data["functions"]]
    return functions, [frame(index, of) for index, of in enumerate(profile.data["frames"])]


def _sides(profile: Profile, metric: Optional[str], common: Set[str]) -> Tuple[Dict[Key, _Side], Set[str]]:
    """The paths of a profile, and the functions that it has measured."""
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
    """What has changed from one profile to another: a row a call path. The paths are matched, and their means compared,
    as by ``ipath diff``.

    Args:
        metric: the metric whose means are compared: the first that both have where it is None.

    Returns:
        Columns ``function``, ``stack``, ``old_count``, ``new_count`` (NaN where the path is not there), ``old_measured``,
        ``new_measured`` (False where the profile has not measured the function at all), and for a metric
        ``old_sum``, ``new_sum``, ``old_mean``, ``new_mean``, ``ratio``, ``p_value_alone`` (how likely chance is, of this
        path by itself) and ``p_value`` (the same where it is looked for among all paths, by Holm's method).
    """
    if metric is None:
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
    if metric is None or table.empty:
        return table
    table["p_value_alone"], table["p_value"] = alone, adjusted(alone)
    change = (table["new_sum"].fillna(0) - table["old_sum"].fillna(0)).abs()
    # As in `ipath diff`, what one profile has not measured comes last.
    change[~(table["old_measured"] & table["new_measured"])] -= change.max() + 1
    return table.loc[change.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)

"""Two profiles, path by path."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Tuple

import pandas as pd

from .profile import Profile

Key = Tuple[str, Tuple[str, ...]]
#: Calls, sum of the values, and sum of their squares as the histogram bounds it from the middle of each bucket.
Moments = Tuple[int, int, int, float]


def _moments(profile: Profile, metric: Optional[str]) -> Dict[Key, Moments]:
    found: Dict[Key, Moments] = {}
    for index, entry in enumerate(profile.data["paths"]):
        stack = tuple(str(frame) for frame in profile.stack(index))
        key = (profile.function_name(entry["function"]), stack)
        calls, values, total, squares = found.get(key, (0, 0, 0, 0.0))
        calls += int(entry["metrics"]["count"])
        if metric is not None and metric in entry["metrics"]:
            total += int(entry["metrics"][metric]["sum"])
            buckets = profile.histogram(index, metric)
            values += int(buckets["count"].sum())
            middle = (buckets["low"] + buckets["high"]) / 2
            squares += float((buckets["count"] * middle**2).sum())
        found[key] = (calls, values, total, squares)
    return found


def _mean(of: Optional[Moments]) -> Tuple[float, float]:
    """The mean, and its standard error: exact sum, variance from the histogram."""
    if of is None or of[1] == 0:
        return math.nan, math.nan
    _, n, total, squares = of
    mean = total / n
    variance = max(0.0, squares / n - mean**2) * (n / (n - 1) if n > 1 else math.nan)
    return mean, math.sqrt(variance / n)


def diff(old: Profile, new: Profile, metric: Optional[str] = None) -> pd.DataFrame:
    """What has changed from one profile to another: a row a call path, told apart by names.

    Args:
        metric: the metric whose means are compared: the first that both have where it is None.

    Returns:
        Columns ``function``, ``stack``, ``old_count``, ``new_count`` (NaN where the path is not there), and for a metric
        ``old_sum``, ``new_sum``, ``old_mean``, ``new_mean``, ``ratio`` and ``p_value`` (two-sided, of equal means, by
        the normal approximation; of one path: who looks at many expects one in a hundred below 0.01 by chance).
    """
    if metric is None:
        metric = next((m for m in old.metrics if m in new.metrics), None)
    before, after = _moments(old, metric), _moments(new, metric)
    rows: List[Dict[str, object]] = []
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        row: Dict[str, object] = {
            "function": key[0],
            "stack": key[1],
            "old_count": a[0] if a else math.nan,
            "new_count": b[0] if b else math.nan,
        }
        if metric is not None:
            (old_mean, old_error), (new_mean, new_error) = _mean(a), _mean(b)
            error = math.hypot(old_error, new_error)
            apart = abs(new_mean - old_mean)
            row["old_sum"] = a[2] if a else math.nan
            row["new_sum"] = b[2] if b else math.nan
            row["old_mean"], row["new_mean"] = old_mean, new_mean
            row["ratio"] = new_mean / old_mean if old_mean else math.nan
            row["p_value"] = math.erfc(apart / error / math.sqrt(2)) if error > 0 else math.nan
        rows.append(row)
    table = pd.DataFrame(rows)
    if metric is None or table.empty:
        return table
    change = (table["new_sum"].fillna(0) - table["old_sum"].fillna(0)).abs()
    return table.loc[change.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)

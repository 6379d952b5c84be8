"""Pictures of profiles, by matplotlib (``pip install ipath-profile[plot]``)."""

from __future__ import annotations

import textwrap
from typing import Optional

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from .profile import Profile


#: The most letters on a line of a label.
LETTERS = 72


def paths(profile: Profile, metric: Optional[str] = None, limit: int = 20, axes: Optional[Axes] = None) -> Axes:
    """A bar for each of the costliest call paths, named by the function and its nearest callers."""
    table = profile.paths(metric).head(limit)[::-1]
    column = "count" if metric is None else f"{metric}_sum"
    names = [" < ".join((f, *stack[:2])) for f, stack in zip(table["function"], table["stack"])]
    # Whole names, wrapped.
    names = ["\n".join(textwrap.wrap(name, LETTERS)) for name in names]
    lines = sum(name.count("\n") + 1 for name in names)
    axes = axes or plt.subplots(figsize=(12, 0.3 * lines + 1), layout="constrained")[1]
    axes.barh(range(len(table)), table[column].astype(float))
    axes.set_yticks(range(len(table)), labels=names)
    axes.set_xlabel(f"{metric or 'count'} [{profile.units[metric or 'count']}]")
    return axes


def histogram(profile: Profile, path: int, metric: str = "wall", axes: Optional[Axes] = None) -> Axes:
    """How the values of a path are distributed, on a logarithmic axis."""
    buckets = profile.histogram(path, metric)
    axes = axes or plt.subplots()[1]
    widths = buckets["high"] - buckets["low"]
    axes.bar(buckets["low"], buckets["count"], width=widths, align="edge", edgecolor="white")
    if not (buckets["low"] < 0).any():
        axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel(f"{metric} [{profile.units[metric]}]")
    axes.set_ylabel("calls")
    return axes

"""Demangled names of functions."""

from __future__ import annotations

import subprocess
from typing import Any, Dict, Mapping


def demangled(data: Mapping[str, Any]) -> Dict[str, str]:
    """Return names by linkage name.

    The profile contains the names of the measured functions. The names of all other functions come
    from ``c++filt`` (binutils); without it the result has only the measured functions.
    """
    known = {f["linkage"]: f["name"] for f in data["functions"] if f.get("linkage")}
    frames = data["frames"]
    called = {f.get("function") for frame in frames for f in (frame, *frame.get("inlined", ()))}
    mangled = sorted(name for name in called if name and name.startswith(("_Z", "_R")) and name not in known)
    if not mangled:
        return known
    try:
        done = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return known
    shown = done.stdout.splitlines()
    return {**dict(zip(mangled, shown)), **known} if len(shown) == len(mangled) else known

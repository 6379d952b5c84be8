"""A synthetic profile, and profiles that ipath wrote (in the folder ``IPATH_PROFILES``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List

import pytest


def timer(calls: int, each: int) -> Dict[str, Any]:
    bucket = each.bit_length() - 1
    total = calls * each
    return {"sum": total, "min": each, "max": each, "outermost": total, "exclusive": total, "hist": [[bucket, calls]]}


def profile(slow: int = 4000) -> Dict[str, Any]:
    """A profile with two paths to ``work`` and one to ``rest``.

    The paths to ``work`` have 1000 calls of 1500 ns and 10 calls of `slow` ns.
    """

    def path(function: int, stack: List[int], wall: Dict[str, Any], **more: Any) -> Dict[str, Any]:
        calls = sum(n for _, n in wall["hist"])
        entry = {"function": function, "stack": stack, "complete": True, "thread": None}
        return {**entry, "metrics": {"count": calls, "wall": wall}, **more}

    def function(name: str, address: int) -> Dict[str, Any]:
        return {"name": f"{name}()", "linkage": name, "module": 0, "address": address, "size": 64, "entry": "window",
                "exits": ["window"], "totals": {"count": 0}}

    def frame(name: str, address: int, **more: Any) -> Dict[str, Any]:
        return {"module": 0, "address": address, "function": name, "offset": 4, "file": "app.c", "line": 12,
                "inlined": [], **more}

    helper = [{"function": "helper", "file": "app.h", "line": 3}]
    nothing = {"module": None, "address": 0x77, "function": None, "offset": None}
    data = {
        "schema": "ipath-profile/1",
        "ipath": "0.1.0",
        "target": {"pid": 1, "exe": "/bin/app", "args": ["app"], "host": "h", "labels": {"rank": "3"}},
        "session": {"started_unix_ns": 0, "elapsed_ns": 5_000_000_000, "clock_hz": 1, "stops": []},
        "metrics": [{"name": "count", "unit": "calls"}, {"name": "wall", "unit": "ns"}],
        "modules": [{"path": "/bin/app", "build_id": "ab12"}],
        "functions": [function("work", 100), function("rest", 200)],
        "refused": [],
        "frames": [frame("fast", 300, inlined=helper), frame("slow", 400), frame("main", 500), nothing],
        "paths": [
            path(0, [0, 2], timer(1000, 1500)),
            path(0, [1, 2], timer(10, slow)),
            path(1, [3], timer(4, 2), complete=False),
        ],
        "losses": {"missed": 0, "overflow": 0, "unwound": 0, "open": 0, "incomplete": 4},
    }
    for index, of in enumerate(data["functions"]):
        own = [p["metrics"] for p in data["paths"] if p["function"] == index]
        total = sum(m["wall"]["sum"] for m in own)
        of["totals"] = {"count": sum(m["count"] for m in own), "wall": {"sum": total, "min": 0, "max": 0}}
    return data


def written() -> List[Path]:
    """The profiles that ipath wrote. Empty if ``IPATH_PROFILES`` is not set."""
    folder = os.environ.get("IPATH_PROFILES")
    return sorted(Path(folder).glob("*.json")) if folder else []


@pytest.fixture(params=written(), ids=lambda path: path.stem)
def real(request: pytest.FixtureRequest) -> Path:
    return request.param  # type: ignore[no-any-return]

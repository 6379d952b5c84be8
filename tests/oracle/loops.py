"""Prints the loops of each function of a C source, by the syntax tree of clang.

    loops.py FILE [FLAG...]

The result is JSON: for each function `{"loops": [[depth, first line, last line, begins with a
loop]], "jumps": true}`. `jumps` says that the function has a goto. `do` loops that never repeat
(`while (0)`) are left out.
"""

import json
import subprocess
import sys

LOOPS = {"ForStmt", "WhileStmt", "DoStmt"}


def constant(node):
    """The value of a constant expression in parentheses and casts; None for others."""
    while node.get("kind") in ("ImplicitCastExpr", "ParenExpr", "CStyleCastExpr", "ConstantExpr"):
        node = node["inner"][0]
    return int(node["value"]) if node.get("kind") == "IntegerLiteral" else None


def condition(loop):
    """The condition of a loop: None if it has none."""
    inner = loop["inner"]
    if loop["kind"] == "DoStmt":
        return inner[1]
    if loop["kind"] == "WhileStmt":
        return inner[-2]
    return inner[2] or None


def first_statement(loop):
    """The kind of the first statement of a loop's body."""
    body = loop["inner"][0] if loop["kind"] == "DoStmt" else loop["inner"][-1]
    while body.get("kind") == "CompoundStmt" and body.get("inner"):
        body = body["inner"][0]
    return body.get("kind")


class Tree:
    """Follows the positions, which clang prints where they change, in the order of the tree."""

    def __init__(self):
        self.line = 0
        self.functions = {}

    def position(self, where):
        """The line of a position; in a macro, that of its use."""
        if not where:
            return self.line
        if "expansionLoc" in where:
            self.position(where.get("spellingLoc"))
            return self.position(where["expansionLoc"])
        self.line = where.get("line", self.line)
        return self.line

    def read(self, node, function, depth):
        kind = node.get("kind")
        self.position(node.get("loc"))
        extent = node.get("range", {})
        first, last = self.position(extent.get("begin")), self.position(extent.get("end"))
        inner = [child for child in node.get("inner", []) if child]
        if kind == "FunctionDecl" and any(c.get("kind") == "CompoundStmt" for c in inner):
            function = self.functions[node["name"]] = {"loops": [], "jumps": False}
            depth = 0
        if function is not None and kind in ("GotoStmt", "IndirectGotoStmt"):
            function["jumps"] = True
        if function is not None and kind in LOOPS:
            test = condition(node)
            value = constant(test) if test else 1
            if kind != "DoStmt" or value != 0:
                begins = first_statement(node) in LOOPS
                function["loops"].append([depth, first, last, begins])
                depth += 1
        for child in inner:
            self.read(child, function, depth)


def main():
    sys.setrecursionlimit(1_000_000)
    command = ["clang", "-fsyntax-only", "-w", "-Xclang", "-ast-dump=json", *sys.argv[1:]]
    dump = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    tree = Tree()
    tree.read(json.loads(dump), None, 0)
    json.dump(tree.functions, sys.stdout)


main()

"""Every code of a finding is described with its severities, and every one that is described exists."""

import ast
import re
from pathlib import Path

import topotune.health

ROOM = Path(topotune.health.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "check.md"
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
SEVERITIES = ("error", "warning", "info")


def words(node: ast.AST, tree: ast.Module) -> set[str]:
    """The texts that an expression may be: its own, and those that a function it calls may return."""
    found = {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    called = {
        each.func.id
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in called:
            for each in ast.walk(function):
                if isinstance(each, ast.Return) and each.value is not None:
                    found |= words(each.value, tree)
    return found


def named(values: ast.Tuple) -> set[str]:
    """The codes that stand in a tuple."""
    texts = (
        each.value for each in values.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
    return set(filter(CODE.fullmatch, texts))


def given() -> dict[str, set[str]]:
    """Code → the severities that the checks may give it."""
    found: dict[str, set[str]] = {}
    for file in ROOM.glob("*.py"):
        tree = ast.parse(file.read_text())
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding":
                keywords = {each.arg: each.value for each in call.keywords}
                codes = set(filter(CODE.fullmatch, words(keywords["code"], tree)))
                # Where it is handed on, it was returned or yielded among other things.
                codes = codes or {
                    word
                    for each in ast.walk(tree)
                    if isinstance(each, ast.Return | ast.Yield) and isinstance(each.value, ast.Tuple)
                    for word in named(each.value)
                }
                for code in codes:
                    found.setdefault(code, set()).update(words(keywords["severity"], tree) & set(SEVERITIES))
    return found


def test_the_page_lists_each_code_and_severity_that_the_checks_give():
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| ([a-z, ]+) \|", PAGE.read_text(), re.MULTILINE)
    assert [code for code, _ in listed] == sorted(code for code, _ in listed)
    assert {code: set(severities.split(", ")) for code, severities in listed} == given()

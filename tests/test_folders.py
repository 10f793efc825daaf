"""Folders of the package call downwards only, in the order that CONTRIBUTING.md gives."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "mgrade"
ALLOWED = {("nn", "hub")}  # `Model`'s methods for hubs, when they are called
ABOVE_ALL = {"__init__", "__main__", "demo"}  # what stands in the package itself, and calls folders
BELOW_ALL = {"_checks", "_files", "_library", "_provenance"}  # and what folders call


def order():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (listed,) = re.findall(r"call downwards only\*\*: (.*?)\.\s", page, re.S)
    return re.findall(r"`(\w+)`", listed)


def calls():
    """Every (folder, folder that a file of it imports from)."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "mgrade":
                names = [f"mgrade.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {(here, name.split(".")[1]) for name in names if name.startswith("mgrade.")}
    return {(here, there) for here, there in found if here != there}


def test_all_folders_are_listed():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert sorted(order()) == sorted(folders)
    assert files == ABOVE_ALL | BELOW_ALL


def test_folders_call_downwards_only():
    places = {name: place for place, name in enumerate(order())}
    between = {(here, there) for here, there in calls() if here in places and there in places}
    assert len(between) > 20
    assert {(here, there) for here, there in between if places[here] > places[there]} == ALLOWED

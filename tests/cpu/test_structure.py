"""The shape of the code itself: packages, sizes of functions and modules, imports, and what the pages promise."""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("actions", "hardware_profiles", "policies", "trajectories")  # sub-packages of mtmc, linked into it
TEMPLATES = ROOT / "mtmc/lower/templates"
HEAVY = [
    f"policies/{name}.py" for name in ("scoring", "model", "merged", "pretrain_bc", "train_rl", "vllm")
]  # models live here
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


def sources() -> Iterator[Path]:
    """Every module of the package, once; links are not followed."""
    for folder in ("mtmc", *FOLDERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


MODULES = {str(path.relative_to(ROOT)): path for path in sources()}
PLAIN = [name for name, path in MODULES.items() if TEMPLATES not in path.parents]
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(name: str) -> list[Function]:
    """Functions and methods of a module; kernels, which Triton compiles whole, are exempt from limits."""
    found = [node for node in ast.walk(TREES[name]) if isinstance(node, Function)]
    return [f for f in found if not any("jit" in ast.unparse(d) for d in f.decorator_list)]


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_the_package_list_is_what_is_there():
    places = {".".join(Path(name).parent.parts) for name in MODULES}
    expected = {place if place.startswith("mtmc") else f"mtmc.{place}" for place in places}
    assert set(CONFIG["tool"]["setuptools"]["packages"]) == expected
    assert CONFIG["tool"]["setuptools"]["package-dir"] == {"mtmc": "mtmc", **{f"mtmc.{f}": f for f in FOLDERS}}


def test_the_links_in_the_package_are_relative_and_lead_to_their_folder():
    links = {path.name: path.readlink() for path in (ROOT / "mtmc").iterdir() if path.is_symlink()}
    assert links == {folder: Path("..") / folder for folder in FOLDERS}


@pytest.mark.parametrize("name", PLAIN)
def test_a_module_is_at_most_400_lines(name):
    lines = MODULES[name].read_text().count("\n")
    assert lines <= 400


@pytest.mark.parametrize("name", PLAIN)
def test_a_function_is_at_most_80_lines_with_6_parameters(name):
    for function in functions(name):
        args = function.args
        count = len([a for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.arg not in ("self", "cls")])
        options = any("command" in ast.unparse(d) for d in function.decorator_list)  # one parameter an option
        assert length(function) <= 80, function.name
        assert count <= 6 or options, function.name


def test_functions_are_short():
    lengths = sorted(length(function) for name in PLAIN for function in functions(name))
    assert statistics.median(lengths) <= 12
    assert lengths[int(0.9 * len(lengths))] <= 40


@pytest.mark.parametrize("name", MODULES)
def test_sub_packages_are_imported_through_mtmc(name):
    for node in ast.walk(TREES[name]):
        imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not {module.partition(".")[0] for module in imported} & set(FOLDERS), ast.unparse(node)


@pytest.mark.parametrize("name", PLAIN)
def test_every_module_says_what_it_is(name):
    assert ast.get_docstring(TREES[name]) or not TREES[name].body


@pytest.mark.parametrize("name", PLAIN)
def test_no_fault_is_swallowed(name):
    """A handler for everything raises again, or says on its line why it must not."""
    lines = MODULES[name].read_text().splitlines()
    for node in ast.walk(TREES[name]):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = ast.unparse(node.type) if node.type else "BaseException"
        if re.search(r"\b(Base)?Exception\b", caught):
            raises = isinstance(node.body[-1], ast.Raise)
            assert raises or re.search(r"# noqa: BLE001  \w+", lines[node.lineno - 1]), f"line {node.lineno}"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.py")), ids=lambda path: path.name)
def test_templates_are_plain_kernels(path):
    text = path.read_text()
    assert "torch.compile" not in text
    assert "torch.ops" not in text
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert ast.unparse(node).split()[1].split(".")[0] in ("torch", "triton"), ast.unparse(node)


def test_torch_is_not_imported_where_modules_must_stay_light():
    for name in PLAIN:
        if name.startswith(("actions/", "trajectories/", "policies/")) and name not in HEAVY:
            top = [ast.unparse(node) for node in TREES[name].body if isinstance(node, (ast.Import, ast.ImportFrom))]
            assert not [line for line in top if re.match(r"(import|from) (torch|triton)\b", line)], name


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_pages_name_every_package(page):
    text = (ROOT / page).read_text()
    for folder in (*FOLDERS, "lower", "judge"):
        assert folder in text


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"`[^`]*`|^    .*$", "", page.read_text(), flags=re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_readme_opens_with_two_commands_and_the_checks_run_the_second():
    readme = (ROOT / "README.md").read_text()
    first_screen = "\n".join(readme.splitlines()[:24])
    commands = re.findall(r"```sh\n(.*?)\n```", first_screen, re.DOTALL)
    assert len(commands) == 2
    run, tests = (command.split(" && ") for command in commands)
    example = re.search(r"examples/\w+\.py", run[-1])
    assert example and (ROOT / example.group()).exists()
    checks = (ROOT / ".ci/run").read_text().splitlines()
    assert f"step {tests[-1]}" in checks
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_the_file_map_is_complete():
    readme = (ROOT / "README.md").read_text()
    hidden = {"build", "dist", "runs", "mtmc.egg-info"}
    for path in ROOT.iterdir():
        if path.is_dir() and not path.name.startswith(".") and path.name not in hidden | {"docs"}:
            assert f"`{path.name}/`" in readme, path.name

"""Lay out an image: ``python3 -m images.stage.assemble NAME ROOT``, in the build stage.

Reads ``images/NAME/contents.toml``. Files come with the libraries that they load and
the licences of their packages; the image gets no package manager, no shell and no
tool besides. Ends with a list of all its parts. The same inputs give the same bytes.
"""
# ruff: noqa: INP001  (a folder of images; the build stage's own tools)

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from images.stage import sbom
from images.stage.root import Root

SOURCE = Path(__file__).parents[2]
STANDARD_LIBRARY = Path("/usr/lib/python3.11")
ARCHIVE = "config-3.11-*/libpython3.11.a"
LAUNCHER = SOURCE / "images/proxy-init/launcher.c"
COMPILERS = (".c", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx")
"""Sources and declarations in wheels, which nobody reads at run time."""

SHEBANG = "#!/usr/bin/python3.11 -I\n"
"""Isolated: no PYTHON* variable counts, no folder of a user."""


def add_files(root: Root, patterns: Iterable[str]) -> None:
    """Files and folders of Debian's packages, by patterns that must lead to some."""
    for pattern in patterns:
        found = sorted(Path("/").glob(pattern.lstrip("/")))
        if not found:
            raise SystemExit(f"expected files like {pattern} in the build stage")
        for path in found:
            root.add(path)


def add_standard_library(root: Root, without: Iterable[str]) -> None:
    """Python's own modules, except some."""
    left_out = [*without, "__pycache__"]
    for folder in (STANDARD_LIBRARY, STANDARD_LIBRARY / "lib-dynload"):
        for path in sorted(folder.iterdir()):
            name = str(path.relative_to(STANDARD_LIBRARY))
            if name != "lib-dynload" and not any(fnmatch(name, p) for p in left_out):
                root.add(path)


def add_packages(root: Root, contents: dict[str, Any]) -> None:
    """Our packages with those that they need."""
    library = root.place(contents["library"])
    library.mkdir(parents=True)
    requirements = ["python3", "images/stage/requirements.py", *contents["extras"]]
    wanted = _run(requirements).splitlines()
    _run(["sh", "images/stage/libraries.sh", str(library), *wanted])
    for pattern in contents["unneeded"]:
        for path in list(library.glob(pattern)):
            shutil.rmtree(path)
    for name in contents["sources"]:
        shutil.copytree(SOURCE / name, library / name)
    for name in contents["without"]:
        shutil.rmtree(library / name)
    for pattern in ("__pycache__", "tests"):
        for path in list(library.rglob(pattern)):
            shutil.rmtree(path)
    for path in list(library.rglob("*")):
        if path.suffix in COMPILERS:
            path.unlink()
    for path in sorted(library.rglob("*.so")):
        _run(["strip", "--strip-unneeded", str(path)])
        root.add_libraries(path)
    licence = root.new_file("/usr/share/doc/proxyinit/copyright", 0o644)
    shutil.copy(SOURCE / "LICENSE", licence)


def add_launcher(root: Root, path: str, module: str, library: str) -> None:
    """Compile a program that has Python inside and runs one module."""
    target = root.new_file(path)
    (archive,) = STANDARD_LIBRARY.glob(ARCHIVE)
    defined = {
        "MODULE": module,
        "LIBRARY": library,
        "STDLIB": STANDARD_LIBRARY,
        "PROGRAM": path,
    }
    macros = [f'-D{name}="{text}"' for name, text in defined.items()]
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-I/usr/include/python3.11"]
    # Not position-independent, as Debian's own python3: the archive is not.
    flags += ["-no-pie", "-s", "-Wl,-export-dynamic"]
    inputs = [str(LAUNCHER), str(archive), "-lexpat", "-lz", "-lm"]
    _run(["gcc", *flags, *macros, "-o", str(target), *inputs])
    root.add_libraries(target)
    root.credit(archive)


def add_script(root: Root, path: str, source: str) -> None:
    """Copy one of our scripts, to be run by the image's Python."""
    text = (SOURCE / source).read_text(encoding="utf-8")
    _, _, body = text.partition("\n")
    root.new_file(path).write_text(SHEBANG + body, encoding="utf-8")


def compile_modules(root: Root, folders: Iterable[str | Path]) -> None:
    """Compile every module, to be believed without a look at its source's time."""
    for folder in folders:
        for path in root.place(folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o644)  # read by Python, not started
        compileall.compile_dir(
            root.place(folder),
            quiet=1,
            maxlevels=20,
            stripdir=str(root.folder),
            prependdir="/",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, check=True, cwd=SOURCE, stdout=subprocess.PIPE)
    return done.stdout.decode()


def main(name: str, folder: str) -> None:
    """Assemble one image."""
    text = (SOURCE / "images" / name / "contents.toml").read_text(encoding="utf-8")
    contents = tomllib.loads(text)
    library = contents["library"]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    os.umask(0o022)
    root = Root(Path(folder))
    add_files(root, contents["files"])
    add_standard_library(root, contents["standard-library"]["without"])
    add_packages(root, contents)
    for path, module in contents.get("launchers", {}).items():
        add_launcher(root, path, module, library)
    for path, source in contents.get("scripts", {}).items():
        add_script(root, path, source)
    for path, target in contents["links"].items():
        root.place(path).parent.mkdir(parents=True, exist_ok=True)
        root.place(path).symlink_to(target)
    compile_modules(root, [STANDARD_LIBRARY, library])
    root.licences()
    _run(["ldconfig", "-r", folder])
    shutil.rmtree(root.place("/var"), ignore_errors=True)  # ldconfig's own notes
    document = sbom.document(name, root.packages, root.place(library), epoch)
    listing = root.new_file(f"/usr/share/sbom/{name}.cdx.json", 0o644)
    listing.write_text(document, encoding="utf-8")
    root.settle(epoch)
    for path, capabilities in contents.get("capabilities", {}).items():
        _run(["setcap", capabilities, str(root.place(path))])


if __name__ == "__main__":
    main(*sys.argv[1:])

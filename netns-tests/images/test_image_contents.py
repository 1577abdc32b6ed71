"""What is in the images: programs, capabilities, licences, sizes; the same twice."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from images import build
from images.sources import Commit
from images.testing.built import Built, Image
from images.testing.oci import Mount, Security, Spec
from images.testing.runtime import Runtime
from proxyinit.lab import Namespace

NAMES = ("init", "identity")
"""The images, as fields of `Built`."""

FRONTENDS = [
    f"/usr/sbin/{family}tables{mode}{suffix}"
    for family in ("ip", "ip6")
    for mode in ("", "-legacy", "-nft")
    for suffix in ("", "-save", "-restore")
]
PROGRAMS = {
    "init": {
        *FRONTENDS,
        "/usr/lib/linkerd/linkerd2-network-validator",
        "/usr/lib/linkerd/linkerd2-proxy-init",
        "/usr/local/bin/network-validator",
        "/usr/local/bin/proxy-init",
        "/usr/sbin/nft",
        "/usr/sbin/xtables-legacy-multi",
        "/usr/sbin/xtables-nft-multi",
    },
    "identity": {
        "/usr/bin/python3.11",
        "/usr/lib/linkerd/linkerd2-proxy-identity",
        "/usr/local/bin/proxy-identity",
        "/usr/local/bin/proxy-injector",
    },
}
"""All that can be started, apart from the loader."""

CAPABLE = {
    "/usr/local/bin/proxy-init": "cap_net_admin,cap_net_raw=ip",
    "/usr/sbin/nft": "cap_net_admin=eip",
    "/usr/sbin/xtables-legacy-multi": "cap_net_admin,cap_net_raw=eip",
    "/usr/sbin/xtables-nft-multi": "cap_net_admin=eip",
}


@pytest.fixture(params=NAMES)
def image(request: pytest.FixtureRequest, built: Built) -> Image:
    """Each of the images."""
    made: Image = getattr(built, request.param)
    return made


def files(image: Image) -> Iterator[tuple[str, Path]]:
    """(path in the image, path here) of everything in it."""
    for path in sorted(image.root.rglob("*")):
        yield f"/{path.relative_to(image.root)}", path


def resolved(image: Image, path: Path) -> Path:
    """Where a link of the image leads to, its root taken for /."""
    while path.is_symlink():
        target = path.readlink()
        path = (
            image.program(str(target)) if target.is_absolute() else path.parent / target
        )
    return path


# === programs and capabilities ===


@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_needed_can_be_started(built: Built, name: str) -> None:
    """No shell, compiler, package manager or pip: every program is on the list."""
    image: Image = getattr(built, name)
    found = {
        path
        for path, place in files(image)
        if resolved(image, place).is_file()
        and resolved(image, place).stat().st_mode & 0o111
        and ".so" not in place.name
    }
    assert found == PROGRAMS[name]


def test_capabilities_are_those_of_the_chain(built: Built) -> None:
    """getcap over the whole image: these files, which only root may change."""
    argv = ["getcap", "-r", str(built.init.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    said = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert {Path(path): caps for path, caps in said.items()} == {
        built.init.program(path): caps for path, caps in CAPABLE.items()
    }
    for path in CAPABLE:
        status = built.init.program(path).stat()
        assert (status.st_uid, status.st_gid) == (0, 0)
        assert stat.S_IMODE(status.st_mode) == 0o755


def test_identity_has_no_capabilities(built: Built) -> None:
    """Nothing in the other image has any."""
    argv = ["getcap", "-r", str(built.identity.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_nobody_may_change_files(image: Image) -> None:
    """All files are root's, none is setuid; only /tmp is for everybody to write to."""
    writable, special, others = [], [], []
    for path, place in files(image):
        status = place.lstat()
        if place.is_symlink():
            continue
        if status.st_mode & 0o022:
            writable.append(path)
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            special.append(path)
        if (status.st_uid, status.st_gid) != (0, 0):
            others.append(path)
    assert (writable, special, others) == (["/tmp"], [], [])  # noqa: S108


# === the configuration ===


def test_configuration(image: Image) -> None:
    """A user without a name, our program as entry point, and OCI's labels."""
    config = image.config["Config"]
    assert config["User"] == "65534:65534"
    (entry,) = config["Entrypoint"]
    assert image.program(entry).is_file()
    labels = config["Labels"]
    prefix = "org.opencontainers.image."
    given = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    wanted = {"title", "description", "licenses", "version", "revision", "created"}
    assert wanted <= given
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}", labels[f"{prefix}revision"])


PATHS = [
    pytest.param("init", "linkerd2-proxy-init", "proxy-init", id="proxy-init"),
    pytest.param(
        "init", "linkerd2-network-validator", "network-validator", id="validator"
    ),
    pytest.param(
        "identity", "linkerd2-proxy-identity", "proxy-identity", id="identity"
    ),
]


@pytest.mark.parametrize(("name", "path", "program"), PATHS)
def test_paths_that_charts_call(
    built: Built, name: str, path: str, program: str
) -> None:
    """Linkerd's paths lead to our programs."""
    image: Image = getattr(built, name)
    called = image.program(f"/usr/lib/linkerd/{path}")
    assert resolved(image, called) == image.program(f"/usr/local/bin/{program}")


# === parts ===


def test_list_of_parts_is_valid(image: Image) -> None:
    """CycloneDX's own schema accepts it."""
    text = listing(image).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None


def listing(image: Image) -> Path:
    return image.program(f"/usr/share/sbom/{image.name}.cdx.json")


def test_every_program_and_library_is_accounted_for(built: Built, image: Image) -> None:
    """The package of each ELF file is on the list, and its licence in the image."""
    parts = json.loads(listing(image).read_text())["components"]
    names = {
        part["name"] for part in parts if part.get("purl", "").startswith("pkg:deb")
    }
    owners: dict[str, str] = {}
    for owned in built.base.program("/var/lib/dpkg/info").glob("*.list"):
        package = owned.name.removesuffix(".list").partition(":")[0]
        owners |= dict.fromkeys(owned.read_text().splitlines(), package)
    unknown = []
    for path, place in files(image):
        if place.is_symlink() or not place.is_file() or ours(path):
            continue
        if place.read_bytes()[:4] == b"\x7fELF":
            owner = owners.get(path) or owners.get(path.removeprefix("/usr"))
            if owner not in names:
                unknown.append((path, owner))
    assert unknown == []
    for name in names:
        assert image.program(f"/usr/share/doc/{name}/copyright").stat().st_size


def ours(path: str) -> bool:
    """Whether a file is not Debian's: our launchers and Python packages."""
    return path.startswith(("/usr/local/", "/usr/lib/proxy-init/"))


# === modules ===

IMPORT_ALL = """
import importlib, pkgutil, sys
names = sys.argv[1].split(",")
sys.path[:] = sys.argv[2:]
failed = []
for name in names:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if found.name.rpartition(".")[2] in ("__main__", "launcher"):
            continue
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed.append(f"{found.name}: {error!r}")
print("\\n".join(failed))
"""


IMPORTED = [
    pytest.param("init", "proxyinit", "/usr/lib/proxy-init", id="init"),
    pytest.param(
        "identity",
        "identity,proxyinit.inject",
        "/usr/local/lib/python3.11/dist-packages",
        id="identity",
    ),
]


@pytest.mark.parametrize(("name", "packages", "library"), IMPORTED)
def test_nothing_is_missing(
    built: Built,
    runtime: Runtime,
    namespace: Namespace,
    *,
    name: str,
    packages: str,
    library: str,
) -> None:
    """Every module of ours can be imported from the files of the image alone."""
    image: Image = getattr(built, name)
    folders = [library, "/usr/lib/python3.11", "/usr/lib/python3.11/lib-dynload"]
    # Debian's own Python, as the image has none that runs what it is told to.
    spec = Spec(
        str(built.base.root),
        [
            *("/usr/bin/python3", "-I", "-S", "-B", "-c", IMPORT_ALL, packages),
            *(f"/image{folder}" for folder in folders),
        ],
        namespace.path,
        Security(capabilities=()),
        mounts=[Mount(str(image.root), "/image", read_only=True)],
    )
    done = runtime.run(spec)
    assert (done.status, done.stdout.strip(), done.stderr) == (0, "", "")


# === building ===


def test_sizes_and_parts_beside_the_archive(built: Built, tmp_path: Path) -> None:
    """As `make images` delivers it, the init image is within its limits."""
    image = built.init
    sizes = build.deliver(image.podman, image.tag, image.name, tmp_path)
    assert list(build.too_large(image.name, sizes)) == []
    assert sizes.unpacked > sizes.compressed > 1
    assert (tmp_path / "proxy-init.cdx.json").read_bytes() == listing(
        image
    ).read_bytes()


def test_identity_is_small_enough(built: Built) -> None:
    """Its files stay below the limit."""
    image = built.identity
    size = sum(
        p.stat().st_size for _, p in files(image) if p.is_file() and not p.is_symlink()
    )
    sizes = build.Sizes(size / 2**20, 0)
    assert list(build.too_large(image.name, sizes)) == []


def test_too_large_is_said() -> None:
    """Both limits count."""
    said = list(build.too_large("proxy-init", build.Sizes(64.5, 25.5)))
    assert len(said) == 2
    assert "64.5 MiB unpacked" in said[0]
    assert "25.5 MiB" in said[1]


def test_same_commit_same_layers(built: Built, image: Image) -> None:
    """Built again from nothing: layers and configuration have the same digests."""
    labels = image.config["Config"]["Labels"]
    epoch = int(image.config["Created"] and created(labels))
    commit = Commit(labels["org.opencontainers.image.revision"], epoch)
    again = build.build(
        image.podman, built.context, image.name, built.base.tag, commit, "--no-cache"
    )
    said = json.loads(image.podman.run("image", "inspect", again))[0]
    assert said["RootFS"] == image.config["RootFS"]
    assert said["Id"] == image.config["Id"]


def created(labels: dict[str, str]) -> int:
    """Seconds since 1970 of the label that says when."""
    text = labels["org.opencontainers.image.created"]
    argv = ["date", "--utc", f"--date={text}", "+%s"]
    return int(subprocess.run(argv, capture_output=True, check=True).stdout)

"""Finds and prepares what the scenarios need, outside the checkout: packages of the system, a
virtual environment with the pinned peers and Milepost's wheel, and the programs of lab/programs.

A tool that cannot be had is a line in `missing`, and its rows are reported as not run.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

LAB = Path(__file__).parent.resolve()
CHECKOUT = LAB.parent
PROGRAMS = LAB / "programs"
PYTHON_PEERS = {"granian": "2.8.7", "gunicorn": "27.0.1", "bjoern": "3.2.2"}
# uvicorn's WebSocket implementation and its parser stand beside it.
ASGI_PACKAGES = {"uvloop": "0.23.0", "uvicorn": "0.54.0", "httptools": "0.9.0", "websockets": "17.4"}
PEERS = ("nginx", "floor", "wrk", "weighttp", *PYTHON_PEERS)
LIBEV_HEADER = Path("/usr/include/ev.h")
# Not always on an ordinary user's PATH.
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


class Unusable(Exception):
    """Nothing can be measured; the text says why and what would help."""


@dataclass
class Toolbox:
    """Where the programs are. `missing` maps a peer's name to the reason why it is not here."""

    venv: Path
    floor: Path
    milepost: Path
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    # Further programs that were built from lab/programs, by their names.
    programs: dict[str, str] = field(default_factory=dict)

    def command(self, name: str) -> str:
        """A program of the virtual environment."""
        return str(self.venv / "bin" / name)


def prepare(peers: list[str], milepost: Path | None) -> Toolbox:
    """Installs what is missing; without `milepost` the checkout is installed as a wheel."""
    cache = cache_folder()
    venv = cache / f"lab-venv-{sys.version_info.major}.{sys.version_info.minor}"
    box = Toolbox(venv, cache / "lab-programs/release/milepost-floor", milepost or venv / "bin/milepost")
    _install_system(box, peers)
    if not (venv / "bin/python").exists():
        _run(box, "venv", [sys.executable, "-m", "venv", str(venv)])
    if "venv" in box.missing:
        raise Unusable(f"{box.missing['venv']}\nhint: apt-get install python3-venv")
    for peer, version in PYTHON_PEERS.items():
        if peer in peers and peer not in box.missing:
            install_peer(box, peer, version)
    if "floor" in peers:
        box.floor = cargo_build(box, "floor")
    _install_milepost(box, milepost is None)
    return box


def machine() -> list[str]:
    """What the numbers depend on, for the head of the report."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return [
        f"cpu      {model.group(1) if model else platform.machine()}, {os.cpu_count()} CPUs"
        f", governor {governor.read_text().strip() if governor.exists() else 'not shown (virtual machine)'}",
        f"memory   {int(memory.group(1)) // 1024 if memory else 0} MB",
        f"kernel   {platform.system()} {platform.release()} {platform.version()}",
        f"tcp      {_setting('net/ipv4/tcp_congestion_control')}, somaxconn {_setting('net/core/somaxconn')}"
        f", tcp_wmem {_setting('net/ipv4/tcp_wmem')}",
        f"python   {sys.implementation.name} {platform.python_version()}, {platform.python_compiler()}",
    ]


def _install_system(box: Toolbox, peers: list[str]) -> None:
    absent = ["wrk"] if "wrk" in peers and shutil.which("wrk") is None else []
    absent += ["nginx"] if "nginx" in peers and not Path(NGINX).exists() else []
    absent += ["libev-dev"] if "bjoern" in peers and not LIBEV_HEADER.exists() else []
    install(absent)
    if "wrk" in peers:
        if shutil.which("wrk"):
            box.versions["wrk"] = _version(["wrk", "-v"])
        else:
            box.missing["wrk"] = "not installed; apt-get install wrk"
    if "weighttp" in peers and not shutil.which("weighttp"):
        box.missing["weighttp"] = "not installed; https://github.com/lighttpd/weighttp"
    if "nginx" in peers:
        try:
            box.versions["nginx"] = _version([NGINX, "-v"])
        except OSError:
            box.missing["nginx"] = "not installed; apt-get install nginx"
    if "bjoern" in peers and not LIBEV_HEADER.exists():
        box.missing["bjoern"] = "needs libev's headers; apt-get install libev-dev"


def install(packages: list[str]) -> None:
    """Installs packages of the system where that is allowed."""
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"lab: installing {' '.join(packages)}", file=sys.stderr)
    # RUNLEVEL=1 keeps a package from starting a server of its own.
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    subprocess.run(command, env=environ, capture_output=True, check=False)


def install_peer(box: Toolbox, peer: str, version: str) -> None:
    """Installs a package of that version into the environment, or says why it is missing."""
    probe = [box.command("python"), "-c", f"import importlib.metadata as m; print(m.version({peer!r}))"]
    if _output(probe) != version:
        source = ["--no-binary", peer] if peer == "bjoern" else []
        _run(box, peer, [box.command("python"), "-m", "pip", "install", "-q", *source, f"{peer}=={version}"])
    if peer not in box.missing:
        box.versions[peer] = version


def cargo_build(box: Toolbox, name: str) -> Path:
    """Builds the program `milepost-NAME` of lab/programs; where it is, or why it is missing."""
    target = cache_folder() / "lab-programs"
    if shutil.which("cargo") is None:
        box.missing[name] = "cargo is not on PATH; install a Rust toolchain"
    else:
        build = ["cargo", "build", "-q", "--release", "--locked", "--package", f"milepost-{name}"]
        _run(
            box, name, [*build, "--manifest-path", str(PROGRAMS / "Cargo.toml"), "--target-dir", str(target)]
        )
    return target / "release" / f"milepost-{name}"


def cache_folder() -> Path:
    """Where everything is kept that is built or installed for the laboratory."""
    folder = Path(os.environ.get("MILEPOST_CACHE") or Path.home() / ".cache" / "milepost")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _install_milepost(box: Toolbox, is_built: bool) -> None:
    if is_built:
        print("lab: pip install . (release build)", file=sys.stderr)
        pip = [
            box.command("python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--force-reinstall",
            "--no-deps",
            str(CHECKOUT),
        ]
        _run(box, "milepost", pip)
    if "milepost" not in box.missing and not box.milepost.exists():
        box.missing["milepost"] = f"`{box.milepost}` does not exist"
    if "milepost" not in box.missing:
        commit = f", commit {_commit()}" if is_built else ""
        box.versions["milepost"] = _version([str(box.milepost), "--version"]) + commit


def _setting(name: str) -> str:
    return " ".join((Path("/proc/sys") / name).read_text().split())


def _commit() -> str:
    git = ["git", "-C", str(CHECKOUT)]
    changed = (
        "" if _output([*git, "status", "--porcelain", "--untracked-files=no"]) == "" else " with changes"
    )
    return (_output([*git, "rev-parse", "--short", "HEAD"]) or "unknown") + changed


def _run(box: Toolbox, name: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()[-3:]
        box.missing[name] = f"`{' '.join(command[:4])} ...` failed: {' | '.join(words)}"[:400]


def _output(command: list[str]) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _version(command: list[str]) -> str:
    """The version as the program prints it: wrk and nginx do so on stderr or with status 1."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = (done.stdout + done.stderr).strip().split("\n")[0]
    return re.sub(r"^(nginx version: nginx/|wrk )", "", line).split(" Copyright")[0] or "unknown"

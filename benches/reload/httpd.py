"""Apache httpd, prefork, with mod_wsgi embedded: where it comes from and how it is configured.

httpd and its headers are packages of the system; mod_wsgi is built against them and against the
interpreter that all other Python servers here run on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import toolbox
from peers import Place
from process import Command
from toolbox import Toolbox

NAME = "httpd"
PROGRAM = shutil.which("apache2") or "/usr/sbin/apache2"
MODULES = Path("/usr/lib/apache2/modules")
MOD_WSGI = "6.1.1"
# httpd started by root wants to become somebody else, who could read neither the environment nor the
# interpreter of the benches; as anybody else it stays who it is. In a user namespace root is anybody.
AS_ANYBODY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def prepare(box: Toolbox) -> None:
    """Installs what is missing, or says in `box.missing` why it cannot be had."""
    if not Path(PROGRAM).exists() or not shutil.which("apxs"):
        toolbox.install(["apache2", "apache2-dev"])
    if not Path(PROGRAM).exists() or not shutil.which("apxs"):
        box.missing[NAME] = "not installed; apt-get install apache2 apache2-dev"
        return
    if os.geteuid() == 0 and subprocess.run([*AS_ANYBODY, "true"], check=False).returncode != 0:
        box.missing[NAME] = "root cannot make a user namespace here; run as another user"
        return
    toolbox.install_peer(box, "mod_wsgi", MOD_WSGI)
    if "mod_wsgi" in box.missing:
        box.missing[NAME] = box.missing.pop("mod_wsgi")
        return
    box.programs["mod_wsgi"] = _printed([box.command("mod_wsgi-express"), "module-location"])
    box.programs["python-home"] = _printed([box.command("python"), "-c", "import sys; print(sys.prefix)"])
    box.versions[NAME] = _printed([PROGRAM, "-v"]).split("\n")[0].removeprefix("Server version: ")


def command(
    box: Toolbox, place: Place, children: int, apps: Path, backlog: int, lines: Sequence[str]
) -> Command:
    """So many children from the beginning to the end; `lines` are more of its configuration."""
    script = place.directory / "telling.wsgi"
    script.write_text("from telling_app import app as application\n")
    config = place.directory / "httpd.conf"
    config.write_text(f"""ServerRoot {place.directory}
DefaultRuntimeDir {place.directory}
PidFile {place.directory}/pid
ServerName localhost
LoadModule mpm_prefork_module {MODULES}/mod_mpm_prefork.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule wsgi_module {box.programs["mod_wsgi"]}
Listen 127.0.0.1:{place.port}
ListenBacklog {backlog}
{chr(10).join(lines)}
ServerLimit {children}
StartServers {children}
MinSpareServers {children}
MaxSpareServers {children}
MaxRequestWorkers {children}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 75
ErrorLog {place.output}
LogLevel crit
WSGIPythonHome {box.programs["python-home"]}
WSGIPythonPath {apps}
# As embedded mode is recommended for one application: the main interpreter.
WSGIApplicationGroup %{{GLOBAL}}
WSGIScriptAlias / {script}
<Directory {place.directory}>
    Require all granted
</Directory>
""")
    before = AS_ANYBODY if os.geteuid() == 0 else ()
    argv = [*before, PROGRAM, "-f", str(config), "-DFOREGROUND"]
    return Command(argv, place.output, place.directory)


def _printed(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

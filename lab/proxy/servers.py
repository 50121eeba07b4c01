"""How each proxy is started: one process, one thread, everything off that a comparison does not need.

Every function takes the `Place` that it may write to and the ports of the upstreams, and gives the `Command`.
Settings are those that each proxy's own manual gives for kept connections; what differs from a default has
its reason beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from lab.process import Command
from lab.servers import APPS, Place
from lab.toolbox import NGINX, Toolbox

# More than any scenario opens; a proxy needs two descriptors for each.
CONNECTIONS_MAX = 4_096
# As many as any scenario has at once: nginx closes those beyond it.
IDLE_CONNECTIONS = 512


def milepost(
    box: Toolbox,
    place: Place,
    ports: Sequence[int],
    *options: str,
    slots: int | None = None,
    balance: str = "queue",
) -> Command:
    """One driver; `slots` of each upstream, or what it learns."""
    config = place.directory / "milepost.toml"
    servers = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports)
    bound = "" if slots is None else f"slots = {slots}\n"
    config.write_text(
        '[[route]]\npath = "/"\nupstream = "back"\n\n'
        f'[[upstream]]\nname = "back"\nservers = [{servers}]\n'
        f'balance = "{balance}"\n{bound}'
    )
    argv = [str(box.milepost), "serve", "--config", str(config), *options]
    argv += ["--bind", f"127.0.0.1:{place.port}", "--drivers", "1"]
    return Command(argv, place.output, APPS)


def nginx(
    place: Place, ports: Sequence[int], access_log: str = "off", balance: str = "", per_server: str = ""
) -> Command:
    """One worker with kept connections to upstreams."""
    config = place.directory / "nginx.conf"
    # The worker must read a private directory of ours when it is started by root.
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"    {kind}_temp_path {place.directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    servers = "".join(f"        server 127.0.0.1:{port} {per_server};\n" for port in ports)
    config.write_text(f"""{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile {CONNECTIONS_MAX + 64};
pid {place.directory}/pid;
error_log stderr crit;
events {{ worker_connections {CONNECTIONS_MAX}; }}
http {{
{temporary}    access_log {access_log};
    keepalive_timeout 600s;
    # The default of 1,000 would close and open connections inside the measurement.
    keepalive_requests 1000000000;
    upstream back {{
        {balance}
{servers}        keepalive {IDLE_CONNECTIONS};
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{place.port} backlog=4096;
        location / {{
            proxy_pass http://back;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            # What Milepost says of the client as well.
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
        }}
    }}
}}
""")
    return Command([NGINX, "-p", str(place.directory), "-c", str(config)], place.output, place.directory)


def haproxy(
    place: Place, ports: Sequence[int], balance: str = "roundrobin", slots: int | None = None
) -> Command:
    """One thread; any request may use any kept connection; `slots` of each upstream, others in its queue."""
    config = place.directory / "haproxy.cfg"
    bound = "" if slots is None else f"maxconn {slots}"
    servers = "".join(f"    server s{port} 127.0.0.1:{port} {bound}\n" for port in ports)
    config.write_text(f"""global
    nbthread 1
    maxconn {CONNECTIONS_MAX}
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 60s
    timeout queue 60s
    option forwardfor
    http-reuse always
frontend front
    bind 127.0.0.1:{place.port} backlog 4096
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    default_backend back
backend back
    balance {balance}
{servers}""")
    return Command(["haproxy", "-db", "-f", str(config)], place.output, place.directory)


def caddy(place: Place, ports: Sequence[int], balance: str = "random") -> Command:
    """One processor for its scheduler."""
    config = place.directory / "Caddyfile"
    servers = " ".join(f"127.0.0.1:{port}" for port in ports)
    config.write_text(f"""{{
    admin off
    auto_https off
    log {{
        level ERROR
    }}
}}
http://127.0.0.1:{place.port} {{
    bind 127.0.0.1
    reverse_proxy {servers} {{
        lb_policy {balance}
    }}
}}
""")
    home = {"HOME": str(place.directory), "XDG_DATA_HOME": str(place.directory), "GOMAXPROCS": "1"}
    argv = ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]
    return Command(argv, place.output, place.directory, home)


def relay(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
    """What the kernel alone takes, before one upstream."""
    argv = [str(box.floor.with_name("milepost-relay")), str(place.port), str(ports[0])]
    return Command(argv, place.output, place.directory)


def upstream(box: Toolbox, place: Place, threads: int, *options: str) -> Command:
    """A server of so many threads, whose requests take as long as their paths say."""
    argv = [box.programs["upstream"], str(place.port), str(threads), *options]
    return Command(argv, place.output, place.directory)

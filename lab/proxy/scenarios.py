"""What is compared with what. Every proxy has one process and one thread; nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab import measure, servers
from lab.process import Command
from lab.proxy import mix, simulation
from lab.proxy import servers as proxies
from lab.proxy.measure import Behind, ProxyRow, UpstreamStart, central, held, load, mixed, reuse
from lab.scenario import MILEPOST, Bar, Compared, Scenario, Take
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("small", "small-log", "small-one", "small-64", "mixed", "slow", "clients", "reuse", simulation.NAME)
PEERS = ("nginx", "haproxy", "caddy", "floor")
KEPT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
# Enough that no request of a rate waits for a connection.
CONNECTIONS = 512
MISBEHAVING = 400
CENTRAL = "central queue"
RELAY = "bare relay"


def every() -> list[Scenario]:
    """All scenarios."""
    return [
        _small("small", 16),
        _small_log(),
        _small("small-one", 1),
        _small("small-64", 64),
        _mixed(),
        _slow(),
        _clients(),
        _reuse(),
        simulation.scenario((_reporting,) * mix.UPSTREAMS, CONNECTIONS),
    ]


@dataclass(frozen=True)
class _Before:
    """Upstreams, and how they are loaded."""

    upstreams: Sequence[UpstreamStart]
    take: Take
    connections: int = 16
    rate: float = 0.0
    misbehaving: int = 0

    def row(self, name: str, tool: str, behind: Behind) -> ProxyRow:
        """One proxy before them."""
        return ProxyRow(
            name,
            tool,
            start=lambda box, place: behind(box, place, []),
            connections=self.connections,
            slow_readers=self.misbehaving,
            take=self.take,
            behind=behind,
            upstreams=self.upstreams,
            rate=self.rate,
        )


def _peers(before: _Before, slots: int | None = None, least: bool = False) -> tuple[ProxyRow, ...]:
    """All peers, each with the rule of its manual for uneven requests where `least` is asked for."""
    return (
        before.row(
            "nginx",
            "nginx",
            lambda box, place, ports: proxies.nginx(place, ports, balance="least_conn;" if least else ""),
        ),
        *([_nginx_bounded(before, slots)] if least and slots else []),
        before.row(
            "haproxy",
            "haproxy",
            lambda box, place, ports: proxies.haproxy(
                place, ports, "leastconn" if least else "roundrobin", slots
            ),
        ),
        before.row(
            "caddy",
            "caddy",
            lambda box, place, ports: proxies.caddy(place, ports, "least_conn" if least else "random"),
        ),
    )


def _nginx_bounded(before: _Before, slots: int) -> ProxyRow:
    """Its `max_conns` refuses what another proxy lets wait: the percentiles are those of what is left."""

    def behind(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
        return proxies.nginx(place, ports, balance="least_conn;", per_server=f"max_conns={slots}")

    return before.row("nginx, max_conns", "nginx", behind)


def _small(name: str, connections: int) -> Scenario:
    before = _Before((_floor,), measure.undisturbed(load), connections)
    bars = (
        Bar("cpu_us", MILEPOST, "nginx", at_most=0.75),
        Bar("cpu_us", MILEPOST, "haproxy", at_most=0.9),
    )
    rows = (
        before.row(MILEPOST, MILEPOST, proxies.milepost),
        *_peers(before),
        before.row(RELAY, "floor", proxies.relay),
    )
    title = f"1 KB through the proxy, {connections} connections, kept on both sides"
    return Scenario(name, title, rows, bars, ((MILEPOST, "caddy"), (MILEPOST, RELAY), ("nginx", RELAY)))


def _small_log() -> Scenario:
    def logging(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
        return proxies.milepost(box, place, ports, "--access-log", str(place.access_log))

    def nginx_logging(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
        return proxies.nginx(place, ports, str(place.access_log))

    before = _Before((_floor,), measure.undisturbed(load))
    rows = (before.row(MILEPOST, MILEPOST, logging), before.row("nginx", "nginx", nginx_logging))
    bars = (Bar("cpu_us", MILEPOST, "nginx", at_most=0.75),)
    return Scenario("small-log", "the same with an access log on both sides", rows, bars)


def _mixed() -> Scenario:
    """Beside what one queue for all threads would do."""
    reporting = f"{MILEPOST} by reports"
    take = measure.undisturbed(mixed)
    rate = mix.rate(0.9)
    before = _Before((_upstream,) * mix.UPSTREAMS, take, CONNECTIONS, rate)
    told = _Before((_reporting,) * mix.UPSTREAMS, take, CONNECTIONS, rate)
    rows = (
        before.row(MILEPOST, MILEPOST, _slotted),
        told.row(reporting, MILEPOST, proxies.milepost),
        *_peers(before, mix.THREADS, least=True),
        _central(mix.UPSTREAMS, rate),
    )
    title = f"{mix.UPSTREAMS} upstreams of {mix.THREADS} threads, 2, 20 and 120 ms mixed, 90 % load"
    also = ((MILEPOST, CENTRAL), (reporting, "nginx"), (reporting, "haproxy"), (reporting, CENTRAL))
    return Scenario("mixed", title, rows, _p99_bars(), also)


def _slow() -> Scenario:
    """The last one is slow."""
    rate = mix.rate(0.5, mix.UPSTREAMS - 1)
    upstreams = (*(_upstream,) * (mix.UPSTREAMS - 1), _ten_times_slower)
    before = _Before(upstreams, measure.undisturbed(mixed), CONNECTIONS, rate)
    rows = (
        before.row(MILEPOST, MILEPOST, _slotted),
        *_peers(before, mix.THREADS, least=True),
        _central(mix.UPSTREAMS - 1, rate),
    )
    bars = (
        Bar("p99_us", MILEPOST, CENTRAL, at_most=1.2),
        Bar("last_share", MILEPOST, None, at_most=0.02),
    )
    title = "one of them ten times slower, at half of what the others can do; the queue is that of the others"
    return Scenario("slow", title, rows, bars, tuple((MILEPOST, peer) for peer in PEERS[:3]))


def _clients() -> Scenario:
    """What an upstream of eight threads has, with and without clients that misbehave."""
    upstreams = (lambda box, place: proxies.upstream(box, place, 8),)
    quiet = _Before(upstreams, held, CONNECTIONS)
    beside = _Before(upstreams, held, CONNECTIONS, misbehaving=MISBEHAVING)
    crowded = f"{MILEPOST}, {MISBEHAVING} misbehaving clients"
    rows = (
        quiet.row(MILEPOST, MILEPOST, proxies.milepost),
        beside.row(crowded, MILEPOST, proxies.milepost),
        *_peers(beside),
    )
    bars = (Bar("slots_held", crowded, MILEPOST, at_most=1.0, compared=Compared.DIFFERENCE),)
    return Scenario("clients", "8 MB through the proxy beside clients that hold what they have", rows, bars)


def _reuse() -> Scenario:
    before = _Before((_upstream,) * mix.UPSTREAMS, measure.undisturbed(reuse), 64)
    rows = (before.row(MILEPOST, MILEPOST, proxies.milepost), *_peers(before))
    bars = (Bar("reused_share", MILEPOST, None, at_least=0.999),)
    return Scenario("reuse", "64 connections, 4 upstreams: connections that were used again", rows, bars)


def _p99_bars() -> tuple[Bar, ...]:
    return (
        Bar("p99_us", MILEPOST, "nginx", at_most=0.5),
        Bar("p99_us", MILEPOST, "haproxy", at_most=1.0),
        Bar("p99_us", MILEPOST, "caddy", at_most=0.5),
    )


def _central(upstreams: int, rate: float) -> ProxyRow:
    return _Before((_upstream,) * upstreams, central, rate=rate).row(CENTRAL, MILEPOST, proxies.milepost)


def _slotted(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
    return proxies.milepost(box, place, ports, slots=mix.THREADS)


def _floor(box: Toolbox, place: Place) -> Command:
    return servers.floor(box, place, KEPT)


def _upstream(box: Toolbox, place: Place) -> Command:
    return proxies.upstream(box, place, mix.THREADS)


def _reporting(box: Toolbox, place: Place) -> Command:
    return proxies.upstream(box, place, mix.THREADS, "reports")


def _ten_times_slower(box: Toolbox, place: Place) -> Command:
    return proxies.upstream(box, place, mix.THREADS, f"slow={mix.SLOW_TIMES}")

"""Several servers of an upstream: who gets a request, and what happens when some do not work."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import Client, request
from serving import Milepost, free_port, tables, until


def named(name: str, status: str = "200 OK") -> Callable[[Connection], None]:
    """An upstream that answers with its name."""
    return answering(lambda one, _: one.reply(name.encode(), status=status))


def proxy(serve: Callable[..., Milepost], *urls: str, **options: object) -> Milepost:
    toml = tables("route", {"path": "/", "upstream": "back"})
    return serve(toml=toml + tables("upstream", {"name": "back", "servers": list(urls)} | options))


@contextlib.contextmanager
def servers(*names: str) -> Any:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Upstream(named(name))) for name in names]


def readable(clients: list[Client]) -> list[Client]:
    """Those that have got something."""
    ready, _, _ = select.select([client.sock for client in clients], [], [], 0)
    return [client for client in clients if client.sock in ready]


def ask(client: Client, times: int, *headers: str, target: str = "/") -> list[str]:
    replies = [client.ask("GET", target, *headers) for _ in range(times)]
    assert all(reply.status == 200 for reply in replies), [reply.status for reply in replies]
    return [reply.text for reply in replies]


def test_round_robin_goes_round(serve: Callable[..., Milepost]) -> None:
    with servers("a", "b", "c") as ups:
        with proxy(serve, *(up.url for up in ups), balance="round-robin").connect() as client:
            got = ask(client, 9)
        assert {got.count(name) for name in "abc"} == {3}


def test_weights_share_requests(serve: Callable[..., Milepost]) -> None:
    with servers("a", "b") as (a, b):
        toml = tables("route", {"path": "/", "upstream": "back"})
        toml += tables("upstream", {"name": "back", "balance": "round-robin"})
        toml += tables("upstream.server", {"url": a.url, "weight": 3}, {"url": b.url})
        with serve(toml=toml).connect() as client:
            got = ask(client, 8)
        assert (got.count("a"), got.count("b")) == (6, 2)


def test_first_uses_one_server_until_it_is_full(serve: Callable[..., Milepost]) -> None:
    with servers("a", "b") as ups:
        with proxy(serve, *(up.url for up in ups), balance="first").connect() as client:
            assert set(ask(client, 20)) == {"a"}


def test_a_hash_sends_equal_keys_to_one_server(serve: Callable[..., Milepost]) -> None:
    with servers("a", "b", "c") as ups:
        server = proxy(serve, *(up.url for up in ups), balance="hash", hash_by="header:x-key")
        with server.connect() as client:
            by_key = {key: set(ask(client, 5, f"X-Key: {key}")) for key in range(20)}
        assert all(len(names) == 1 for names in by_key.values()), by_key
        assert len(set().union(*by_key.values())) == 3


def test_a_cookie_binds_a_client_to_a_server(serve: Callable[..., Milepost]) -> None:
    with servers("a", "b", "c") as ups:
        server = proxy(serve, *(up.url for up in ups), balance="sticky", sticky_cookie="node")
        with server.connect() as client:
            first = client.ask("GET", "/")
            cookie = first.header("set-cookie")
            assert cookie is not None and cookie.startswith("node=")
            assert "127.0.0.1" not in cookie
            mine = cookie.split(";")[0]
            for _ in range(10):
                reply = client.ask("GET", "/", f"Cookie: other=1; {mine}")
                assert (reply.text, reply.header("set-cookie")) == (first.text, None)
            # A server that is gone is replaced, and the cookie with it.
            gone = next(up for up in ups if up.seen and up.seen[-1].header("cookie"))
            gone.close()
            assert until(lambda: client.ask("GET", "/", f"Cookie: {mine}").status == 200)
            other = client.ask("GET", "/", f"Cookie: {mine}")
            assert other.text != first.text and other.header("set-cookie") is not None


def test_requests_that_wait_for_their_server_are_bounded_as_those_in_the_queue(
    serve: Callable[..., Milepost],
) -> None:
    gate = threading.Event()

    def slow(name: str) -> Callable[[Connection], None]:
        def respond(one: Connection, asked: Request) -> None:
            if asked.target == "/slow":
                assert gate.wait(60)
            one.reply(name.encode())

        return answering(respond)

    with Upstream(slow("a")) as a, Upstream(slow("b")) as b, contextlib.ExitStack() as stack:
        server = proxy(serve, a.url, b.url, balance="sticky", slots=1, queue_len_max=2)
        with server.connect() as client:
            first = client.ask("GET", "/")
            cookie = first.header("set-cookie")
            assert cookie is not None
            clients = [stack.enter_context(server.connect()) for _ in range(12)]
            for one in clients:
                one.send(request("GET", "/slow", f"Cookie: {cookie.split(';')[0]}"))
            # One runs, two wait, and the others are not to wait for the gate.
            assert until(lambda: len(readable(clients)) == 9)
            refused = readable(clients)
            for one in refused:
                reply = one.reply()
                assert (reply.status, reply.header("retry-after")) == (503, "1")
            # A client that is bound to no server does not wait for that one.
            assert client.ask("GET", "/").text == ("b" if first.text == "a" else "a")
            gate.set()
            waited = [one.reply() for one in clients if one not in refused]
            assert [(reply.status, reply.text) for reply in waited] == [(200, first.text)] * 3


def test_a_dead_server_costs_no_request_and_is_left_out(serve: Callable[..., Milepost]) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with servers("a", "b") as (a, b):
        server = proxy(serve, a.url, dead, b.url, balance="round-robin", retry_budget="100%")
        with server.connect() as client:
            for _ in range(30):
                assert client.ask("POST", "/", body=b"x").status == 200
        assert len(a.seen) + len(b.seen) == 30
        assert until(lambda: len(server.lines) == 30)
        tries = [int(line.split(" attempts=")[1].split()[0]) for line in server.lines]
        # Ejected after five failures in a row.
        assert tries.count(2) == 5, tries


def test_a_backup_serves_while_no_other_does(serve: Callable[..., Milepost]) -> None:
    with servers("a", "spare") as (a, spare):
        toml = tables("route", {"path": "/", "upstream": "back"})
        toml += tables("upstream", {"name": "back", "eject_after": 1})
        toml += tables("upstream.server", {"url": a.url}, {"url": spare.url, "backup": True})
        with serve(toml=toml).connect() as client:
            assert set(ask(client, 10)) == {"a"}
            a.close()
            assert set(ask(client, 10)) == {"spare"}


def test_checks_find_out_who_works(serve: Callable[..., Milepost]) -> None:
    works = threading.Event()
    works.set()

    def respond(one: Connection, asked: Request) -> None:
        one.reply(b"b", status="200 OK" if works.is_set() or asked.target != "/up" else "503 Down")

    with Upstream(named("a")) as a, Upstream(answering(respond)) as b:
        options = {"check": "/up", "check_interval": "50ms", "balance": "round-robin"}
        server = proxy(serve, a.url, b.url, **options)
        with server.connect() as client:
            assert set(ask(client, 10)) == {"a", "b"}
            works.clear()
            assert until(lambda: "gets no requests: it answered 503" in server.errors)
            assert set(ask(client, 10)) == {"a"}
            works.set()
            assert until(lambda: "gets requests again" in server.errors)
            assert until(lambda: "b" in ask(client, 10))
        assert all(line.split(" ")[6] == "/" for line in server.lines)


def test_a_status_is_tried_elsewhere_where_that_is_asked_for(serve: Callable[..., Milepost]) -> None:
    with Upstream(named("bad", "503 Busy")) as bad, Upstream(named("good")) as good:
        options = {"balance": "first", "retry_status": [503], "retry_budget": "100%", "eject_after": 100}
        with proxy(serve, bad.url, good.url, **options).connect() as client:
            for _ in range(3):
                assert client.ask("GET", "/").text == "good"
            # What could be done twice is not.
            reply = client.ask("POST", "/", body=b"x")
            assert (reply.status, reply.text) == (503, "bad")


@pytest.mark.parametrize("servers_len", [1, 2])
def test_a_status_that_nobody_else_could_replace_comes_as_it_was_given(
    serve: Callable[..., Milepost], servers_len: int
) -> None:
    def respond(one: Connection, _: Request) -> None:
        one.reply(b"maintenance", "Retry-After: 120", "X-App: yes", status="503 Busy")

    with contextlib.ExitStack() as stack:
        ups = [stack.enter_context(Upstream(answering(respond))) for _ in range(servers_len)]
        server = proxy(serve, *(up.url for up in ups), retry_status=[503], retry_budget="100%")
        with server.connect() as client:
            reply = client.ask("GET", "/")
        assert (reply.status, reply.reason, reply.text) == (503, "Busy", "maintenance")
        assert (reply.header("retry-after"), reply.header("x-app")) == ("120", "yes")
        assert [len(up.seen) for up in ups] == [1] * servers_len


def test_retries_have_a_budget(serve: Callable[..., Milepost]) -> None:
    with Upstream(named("bad", "503 Busy")) as bad, Upstream(named("good")) as good:
        options = {"balance": "first", "retry_status": [503], "eject_after": 100}
        with proxy(serve, bad.url, good.url, **options).connect() as client:
            got = [client.ask("GET", "/").text for _ in range(20)]
        # Three in any case, and no more than a tenth of the requests.
        assert got.count("good") == 3, got


def test_a_name_stands_for_its_addresses(serve: Callable[..., Milepost]) -> None:
    with servers("a") as (a,):
        server = proxy(serve, f"http://localhost:{a.port}", eject_after=1)
        with server.connect() as client:
            assert set(ask(client, 5)) == {"a"}
        assert a.seen[0].header("host") == "test"


def test_a_name_without_an_address_is_a_503_and_said(serve: Callable[..., Milepost]) -> None:
    server = proxy(serve, "http://nowhere.invalid:80")
    with server.connect() as client:
        reply = client.ask("GET", "/")
        assert (reply.status, reply.header("retry-after")) == (503, "1")
    assert until(lambda: "nowhere.invalid:80 has no address" in server.errors)


@pytest.mark.parametrize("balance", ["queue", "least-connections", "two-choices", "peak-ewma", "prequal"])
def test_all_rules_serve(serve: Callable[..., Milepost], balance: str) -> None:
    with servers("a", "b", "c", "d") as ups, contextlib.ExitStack() as stack:
        server = proxy(serve, *(up.url for up in ups), balance=balance)
        clients = [stack.enter_context(server.connect()) for _ in range(8)]
        threads = [threading.Thread(target=ask, args=(client, 50)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(len(up.seen) for up in ups) == 400


def test_a_slow_server_gets_less(serve: Callable[..., Milepost]) -> None:
    def slow(one: Connection, _: Request) -> None:
        time.sleep(0.1)
        one.reply(b"slow")

    with servers("a", "b", "c") as ups, Upstream(answering(slow)) as d, contextlib.ExitStack() as stack:
        server = proxy(serve, *(up.url for up in ups), d.url, slots=2)
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        got: list[str] = []
        threads = [threading.Thread(target=lambda c=c: got.extend(ask(c, 100))) for c in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got.count("slow") < 40, got.count("slow")


REPORT = (
    "endpoint-load-metrics: TEXT named_metrics.queue_ms=3.5,named_metrics.waiting=0,named_metrics.running=1,"
    "named_metrics.threads=2,named_metrics.request_queue_ms=1.5,named_metrics.request_run_ms=20"
)


def test_a_server_that_reports_its_threads_gets_no_more_requests(serve: Callable[..., Milepost]) -> None:
    inside, most = 0, 0
    lock = threading.Lock()
    reported = threading.Event()

    def respond(one: Connection, _: Request) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            if reported.is_set():
                most = max(most, inside)
        time.sleep(0.01)
        with lock:
            inside -= 1
        one.reply(b"ok", REPORT)

    with Upstream(answering(respond)) as up, contextlib.ExitStack() as stack:
        server = proxy(serve, up.url)
        clients = [stack.enter_context(server.connect()) for _ in range(8)]
        reply = clients[0].ask("GET", "/")
        # It is meant for the proxy.
        assert reply.header("endpoint-load-metrics") is None
        reported.set()
        threads = [threading.Thread(target=ask, args=(client, 20)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 2 <= most <= 3, most
        assert until(lambda: len(server.lines) == 161)
        assert all("upstream_queue=0.001500 upstream_run=0.020000" in line for line in server.lines)


@pytest.mark.parametrize("retries", [False, True])
def test_a_server_that_is_full_is_not_taken_for_dead(serve: Callable[..., Milepost], retries: bool) -> None:
    def respond(one: Connection, _: Request) -> None:
        one.reply(b"full", "Retry-After: 1", REPORT, status="503 Full")

    with Upstream(answering(respond)) as up, servers("a") as (a,):
        again = {"retry_status": [503], "retry_budget": "100%"} if retries else {}
        server = proxy(serve, up.url, a.url, balance="round-robin", eject_after=1, **again)
        with server.connect() as client:
            got = [client.ask("GET", "/").text for _ in range(6)]
        assert ("full" in got) is not retries and "a" in got
        assert len(up.seen) > 1


def test_processes_share_the_slots_of_a_server(serve: Callable[..., Milepost]) -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    def respond(one: Connection, _: Request) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.005)
        with lock:
            inside -= 1
        one.reply(b"ok")

    with Upstream(answering(respond)) as up, contextlib.ExitStack() as stack:
        toml = "processes = 2\n" + tables("route", {"path": "/", "upstream": "back"})
        toml += tables("upstream", {"name": "back", "servers": [up.url], "slots": 2})
        server = serve(toml=toml)
        clients = [stack.enter_context(server.connect()) for _ in range(12)]
        threads = [threading.Thread(target=ask, args=(client, 30)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 2
        assert until(lambda: len(server.lines) == 360)

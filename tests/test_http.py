import gc
import subprocess
import sys
import time
import warnings
from contextlib import asynccontextmanager, contextmanager, nullcontext

import httpx
import pytest
import trio
import trio.testing
from loopback import Reply, serve

from trio_agent._errors import (
    ModelConnectionError,
    ModelError,
    ModelProtocolError,
    ModelStatusError,
    ModelTimeoutError,
)
from trio_agent.models._http import HttpTransport, encode_json
from trio_agent.models._http_errors import connection_failure, error_text, retry_after
from trio_agent.models._url import BaseURL

CHUNKS = [b"data: %d\n\n" % number for number in range(5)]
SECRET = "sk-very-secret"


def transport(url, **options) -> HttpTransport:
    return HttpTransport(url, headers={"authorization": f"Bearer {SECRET}"}, **options)


async def fetch(http: HttpTransport, on_chunk=None) -> bytes:
    got = bytearray()

    async def collect(chunk: bytes) -> bool:
        got.extend(chunk)
        await trio.lowlevel.checkpoint()
        return False

    await http.stream("/x", {"a": 1}, on_chunk or collect, headers={})
    return bytes(got)


@contextmanager
def nothing_left_to_the_collector():
    """Trio warns when an async generator is left to the garbage collector; so do sockets."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)] == []


async def usable(http: HttpTransport, server) -> None:
    """After whatever happened: no token is out, no connection is open, and the next request works."""
    assert http.limiter.borrowed_tokens == 0
    await server.wait_open(0)
    server.reply = Reply(CHUNKS)
    assert await fetch(http) == b"".join(CHUNKS)
    assert http.limiter.borrowed_tokens == 0


async def test_request_and_response():
    async with serve(Reply(CHUNKS)) as server:
        assert await fetch(transport(server.url)) == b"".join(CHUNKS)
        (request,) = server.requests
        assert request.target == "/v1/x"
        assert request.body == b'{"a":1}'
        assert request.headers["authorization"] == f"Bearer {SECRET}"
        assert request.headers["content-type"] == "application/json"


# --- whose connection it is, and how long it lives


async def test_without_a_block_no_connection_outlives_its_request():
    async with serve(Reply(CHUNKS)) as server:
        http = transport(server.url)
        await fetch(http)
        await server.wait_open(0)
        await fetch(http)
        assert server.accepted == 2
        await http.aclose()


async def test_inside_a_block_the_connection_is_used_again():
    async with serve(Reply(CHUNKS)) as server:
        http = transport(server.url)
        async with http:
            await fetch(http)
            async with http:
                await fetch(http)
            await fetch(http)
            assert (server.accepted, server.open) == (1, 1)
        await server.wait_open(0)
        await http.aclose()


async def test_leaving_the_block_closes_also_when_cancelled():
    async with serve(Reply(CHUNKS)) as server:
        with trio.CancelScope() as scope:
            async with transport(server.url) as _, transport(server.url):
                pass
            http = transport(server.url)
            async with http:
                await fetch(http)
                scope.cancel()
        await server.wait_open(0)


async def test_a_client_that_is_passed_in_is_not_closed():
    async with serve(Reply(CHUNKS)) as server:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
            http = transport(server.url, client=client)
            async with http:
                await fetch(http)
            assert not client.is_closed
            await fetch(http)
            assert server.accepted == 1


class OtherClient:
    """Not httpx: only the shape."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent = []

    @asynccontextmanager
    async def stream(self, method, url, *, content, headers, timeout):
        self.sent.append((method, url, content, timeout))
        await trio.lowlevel.checkpoint()
        if self.error:
            raise self.error
        yield httpx.Response(200, content=b"data: hello\n\n")


async def test_any_client_of_the_same_shape_will_do():
    client = OtherClient()
    assert await fetch(transport("http://x/v1/?v=2", client=client, timeout=60)) == b"data: hello\n\n"
    assert client.sent == [("POST", "http://x/v1/x?v=2", b'{"a":1}', (10.0, None, 60, None))]


# --- the wall


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (Reply(CHUNKS, close="reset"), ModelConnectionError, "broke"),
        (Reply(raw=b""), ModelConnectionError, "broke"),
        (Reply(raw=b"", close="reset"), ModelConnectionError, "broke"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), ModelConnectionError, "broke"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc"), ModelConnectionError, "broke"),
        (Reply(raw=b"SSH-2.0-OpenSSH_9\r\n\r\n"), ModelProtocolError, "proper HTTP"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), ModelProtocolError, "proper HTTP"),
        (Reply([b"{}"], 404, {}), ModelStatusError, "HTTP 404"),
        (Reply([], 307, {"location": "https://there/v1"}), ModelStatusError, "https://there/v1; set base_url"),
        (Reply([b"x" * 100_000], 500, {}, close="stall"), ModelStatusError, "HTTP 500: xxx"),
        (Reply([b"half of it"], 500, {}, close="reset"), ModelStatusError, "HTTP 500: half of it"),
    ],
)
async def test_the_servers_fault_in_our_words(reply, kind, text):
    async with serve(reply) as server:
        http = transport(server.url)
        with nothing_left_to_the_collector():
            with pytest.raises(kind, match=text) as caught:
                await fetch(http)
            assert type(caught.value) is kind
            assert server.url in str(caught.value)
            assert len(str(caught.value)) < 600
            del caught
        await usable(http, server)


async def test_connection_refused_says_what_to_do():
    async with serve(Reply()) as server:
        url = server.url
    with pytest.raises(ModelConnectionError) as caught:
        await fetch(transport(url))
    assert str(caught.value) == (
        f"cannot connect to {url}: connection refused. Is the server running there, and is base_url right?"
    )


async def keep_jumping(clock, server, seconds: float) -> None:
    """More than once: what the server has sent may not have been read yet when all tasks are blocked."""
    await server.stalled.wait()
    while True:
        await trio.testing.wait_all_tasks_blocked()
        clock.jump(seconds)


async def test_silence_is_a_timeout(mock_clock):
    for reply in (Reply(CHUNKS, close="stall"), Reply(raw=b"", close="stall")):
        async with serve(reply) as server:
            http = transport(server.url)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_jumping, mock_clock, server, 601)
                with pytest.raises(ModelTimeoutError, match="did not send an") as caught:
                    await fetch(http)
                nursery.cancel_scope.cancel()
            assert server.url in str(caught.value)
            await usable(http, server)


def foreign(*names: str, text: str = "") -> Exception:
    """An exception of a class hierarchy with these names, outermost first."""
    kind: type[Exception] = Exception
    for name in reversed(names):
        kind = type(name, (kind,), {})
    return kind(text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (foreign("ConnectTimeout", "TimeoutException", "TransportError"), ModelTimeoutError),
        (foreign("ReadTimeout", "TimeoutException", "TransportError"), ModelTimeoutError),
        (TimeoutError(), ModelTimeoutError),
        (trio.TooSlowError(), ModelTimeoutError),
        (foreign("ConnectError", "NetworkError", "TransportError"), ModelConnectionError),
        (foreign("ReadError", "NetworkError", "TransportError"), ModelConnectionError),
        (trio.BrokenResourceError("x"), ModelConnectionError),
        (OSError(9, "x"), ModelConnectionError),
        (foreign("DecodingError"), ModelProtocolError),
    ],
)
async def test_foreign_errors_are_known_by_name(error, kind):
    with pytest.raises(ModelError) as caught:
        await fetch(transport("http://127.0.0.1:9", client=OtherClient(error)))
    assert type(caught.value) is kind
    assert caught.value.__cause__ is error


async def test_what_is_no_network_error_stays_what_it_is():
    error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError) as caught:
        await fetch(transport("http://127.0.0.1:9", client=OtherClient(error)))
    assert caught.value is error


def test_an_unknown_host_name_is_named_as_the_reason():
    error = foreign("ConnectError")
    error.__cause__ = ExceptionGroup("g", [type("gaierror", (OSError,), {})("no such name")])
    assert "host name cannot be resolved (no such name)" in str(connection_failure(error, "http://x"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "1", "retry-after-ms": "x"}, 1.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds


def test_retry_after_date_in_the_future(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1445412450.0)
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 30.0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"slow","type":"rate_limit","code":null}}', "slow (rate_limit)"),
        (b'{"error":{"code":400,"message":"m","type":"t"}}', "m (t, 400)"),
        (b'{"error":"boom"}', "boom"),
        (b'{"object":"error","message":"boom","type":"BadRequestError","code":400}', "boom (BadRequestError, 400)"),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', "m (overloaded_error)"),
        (b'[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]', "m (429)"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}', "field required (missing)"),
        (b'{"message":"no"}', "no"),
        (
            b'{"error":{"message":"m","code":"tool_use_failed","failed_generation":"<add>{1}"}}',
            "m; the model had written: <add>{1} (tool_use_failed)",
        ),
        (b'{"error":{"odd":1}}', '{"odd": 1}'),
        (b"<html><style>x{}</style><h1>Bad &amp; gateway</h1></html>", "Bad & gateway"),
        (b"plain\n  text", "plain text"),
        (b"{not json", "{not json"),
        (b"", ""),
        (b"\xff", "\ufffd"),
        (b"y" * 1000, "y" * 300 + "…"),
    ],
)
def test_error_text(body, text):
    assert error_text(body) == text


async def test_secrets_do_not_come_back_in_errors():
    echo = b'{"error":{"message":"bad key %b and %b"}}' % (SECRET.encode(), b"hunter22")
    async with serve(Reply([echo], 401, {})) as server:
        http = transport(server.url.replace("://", "://me:hunter22@"))
        with pytest.raises(ModelStatusError) as caught:
            await fetch(http)
    assert "bad key *** and ***" in str(caught.value)
    assert "hunter22" not in f"{caught.value!r} {http.url!r}"


# --- leaving a response


class _Cut(trio.abc.Instrument):
    """Cancels a scope before the k-th step of a task."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left = step
        self.scope = scope
        self.task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if not self.left:
                self.scope.cancel()


@pytest.mark.parametrize("whose", ["ours", "kept", "passed in"])
@pytest.mark.parametrize("reply", [Reply(CHUNKS), Reply([b'{"error":"no"}'], 500, {}), Reply(CHUNKS, chunked=False)])
async def test_cancelled_before_every_step(reply, whose):
    """Nothing is left open, nothing is left to the collector, and the next request works."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with serve(reply) as server, httpx.AsyncClient(limits=limits) as client:
        http = transport(server.url, client=client if whose == "passed in" else None)
        step, cut = 0, True
        while cut:
            step += 1
            server.reply = reply
            with nothing_left_to_the_collector():
                with trio.CancelScope() as scope:
                    instrument = _Cut(step, scope)
                    trio.lowlevel.add_instrument(instrument)
                    try:
                        if whose == "kept":
                            async with http:
                                await fetch(http)
                        else:
                            await fetch(http)
                    except ModelStatusError:
                        assert reply.status == 500
                    finally:
                        trio.lowlevel.remove_instrument(instrument)
            cut = instrument.left <= 0
            await usable(http, server)
        assert step > 5


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("close", ["eof", "stall"])
@pytest.mark.parametrize("way", ["cancel", "cancel and wait", "raise", "raise network", "raise while cancelled"])
async def test_the_callback_stops_at_every_chunk(way, close, kept):
    failures = {"raise": KeyError("mine"), "raise network": trio.BrokenResourceError("mine")}
    failure = failures.get(way, ValueError("mine"))

    async with serve(lambda request: Reply(CHUNKS, close=close)) as server:
        http = transport(server.url)
        for stop_at in range(1, len(b"".join(CHUNKS)), len(CHUNKS[0])):
            seen = 0
            came_out = None
            with nothing_left_to_the_collector(), trio.CancelScope() as scope:

                async def on_chunk(chunk: bytes, stop_at: int = stop_at, scope: trio.CancelScope = scope) -> bool:
                    nonlocal seen
                    before, seen = seen, seen + len(chunk)
                    if before < stop_at <= seen:
                        if "cancel" in way:
                            scope.cancel()
                        if "wait" in way:
                            await trio.lowlevel.checkpoint()
                        if "raise" in way:
                            raise failure
                    return False

                try:
                    if kept:
                        async with http:
                            await fetch(http, on_chunk)
                    else:
                        await fetch(http, on_chunk)
                except Exception as error:  # noqa: BLE001 - looked at below
                    came_out = error
                await trio.lowlevel.checkpoint()
            assert scope.cancelled_caught == ("cancel" in way)
            assert came_out is (failure if "raise" in way else None)
            assert http.limiter.borrowed_tokens == 0
            await server.wait_open(0)
            failure.__traceback__ = None


@pytest.mark.parametrize("fails", [False, True])
async def test_no_chunk_is_delivered_after_the_callback_has_failed_or_is_done(fails):
    calls = 0

    async def on_chunk(chunk: bytes) -> bool:
        nonlocal calls
        calls += 1
        if fails:
            raise KeyError
        return True

    # All chunks in one packet: httpx has them all when the callback sees the first.
    raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n"
    async with serve(Reply(raw=raw)) as server:
        with pytest.raises(KeyError) if fails else nullcontext():
            await fetch(transport(server.url), on_chunk)
    assert calls == 1


async def test_a_callback_that_has_enough_is_not_kept_waiting(mock_clock):
    async def enough(chunk: bytes) -> bool:
        return True

    async with serve(Reply(CHUNKS, close="stall")) as server:
        http = transport(server.url)
        with nothing_left_to_the_collector():
            await fetch(http, enough)
            assert trio.current_time() == 0
            await server.wait_open(0)

            server.stalled = trio.Event()
            async with http, trio.open_nursery() as nursery:
                nursery.start_soon(keep_jumping, mock_clock, server, 0.25)
                await fetch(http, enough)
                nursery.cancel_scope.cancel()
        await server.wait_open(0)


async def test_the_limiter_bounds_requests_and_loses_no_place():
    async with serve(Reply(CHUNKS, close="stall")) as server:
        http = transport(server.url, max_connections=2)
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(fetch, http)
            await server.wait_open(2)
            await trio.testing.wait_all_tasks_blocked()
            assert server.open == 2
            assert http.limiter.statistics().tasks_waiting == 4
            nursery.cancel_scope.cancel()
        await usable(http, server)


async def test_one_task_may_nest_requests():
    async with serve(Reply(CHUNKS[:1])) as server:
        http = transport(server.url)
        inner = []

        async def on_chunk(chunk: bytes) -> bool:
            inner.append(await fetch(http))
            return False

        await fetch(http, on_chunk)
        assert inner == CHUNKS[:1]


# --- events


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: a\n\ndata: b", ["a", "b"]),
        (b' {"error":\n"x"}', ['{"error":\n"x"}']),
        (b'error: {"a":1}\n\n', ['{"a":1}']),
        (b"", []),
        (b": only a comment\n\n", []),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_events(body, expected, size):
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    got = []

    async def on_event(event) -> bool:
        got.append(event.data)
        return False

    async with serve(Reply(pieces)) as server:
        await transport(server.url).events("/x", {}, on_event, headers={})
    assert got == expected


async def test_a_web_page_is_no_event_stream():
    async with serve(Reply([b"<html>Welcome to nginx</html>"])) as server:
        with pytest.raises(ModelProtocolError, match=r"web page.*is base_url right"):
            await transport(server.url).events("/x", {}, None, headers={})  # type: ignore[arg-type]


# --- arguments


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"base_url": 3}, TypeError, "base_url must be a string"),
        ({"base_url": "localhost:80"}, ValueError, "base_url must start with http"),
        ({"base_url": "http://"}, ValueError, "base_url must start with http"),
        ({"base_url": "http://x:port"}, ValueError, "base_url is not a URL"),
        ({"base_url": "http://x/#y"}, ValueError, "base_url must not have a fragment"),
        ({"client": object()}, TypeError, "client must have a stream"),
        ({"timeout": 0}, ValueError, "timeout must be a positive"),
        ({"timeout": float("nan")}, ValueError, "timeout must be a positive"),
        ({"timeout": "1"}, TypeError, "timeout must be a number"),
        ({"max_connections": 0}, ValueError, "max_connections must be at least 1"),
        ({"max_connections": 1.5}, TypeError, "max_connections must be an int"),
        ({"headers": {"a": 1}}, TypeError, "headers\\['a'\\] must be a string"),
        ({"headers": {"a b": "c"}}, ValueError, "headers must have names"),
        ({"headers": {"a": "secret\n"}}, ValueError, "headers\\['a'\\] must be printable"),
    ],
)
def test_bad_arguments(options, kind, text):
    with pytest.raises(kind, match=text) as caught:
        HttpTransport(**{"base_url": "http://x", "headers": {}, **options})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown", "loopback"),
    [
        ("http://127.0.0.1:80/v1/", "http://127.0.0.1:80/v1", True),
        ("http://127.9.9.9", "http://127.9.9.9", True),
        ("http://[::1]:8/v1", "http://[::1]:8/v1", True),
        ("http://LOCALHOST", "http://localhost", True),
        ("https://u:p@h.example/v1?key=s", "https://h.example/v1", False),
        ("http://10.0.0.1", "http://10.0.0.1", False),
        ("http://localhost.example", "http://localhost.example", False),
    ],
)
def test_urls(url, shown, loopback):
    assert (BaseURL(url).shown, BaseURL(url).is_loopback) == (shown, loopback)


def test_half_a_surrogate_pair_is_no_error():
    assert encode_json({"a": "é\ud83d"}) == '{"a":"é\ufffd"}'.encode()
    assert encode_json({"a": "\ud83d\ude00"}) == '{"a":"\U0001f600"}'.encode()


def test_importing_the_package_does_not_import_httpx():
    code = "import sys, trio_agent.models as m; assert 'httpx' not in sys.modules; m.OpenAIChatModel; dir(m)"
    code += "; assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)

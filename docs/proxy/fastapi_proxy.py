"""sandboxd behind FastAPI: who the caller is comes from a signed token, never from its headers.

    uvicorn fastapi_proxy:app      with SANDBOXD_SOCKET and TOKEN_KEY in the environment

Replace identify() by what your platform has. See docs/proxy.md.
"""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from urllib.parse import quote

# Not httpx: over Unix sockets it sends large bodies wrongly with the anyio of Debian 12 (3.6.2).
import aiohttp
from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask
from starlette.requests import HTTPConnection
from yarl import URL

SOCKET = os.environ.get("SANDBOXD_SOCKET", "/run/sandboxd/control.sock")
TOKEN_KEY = os.environ["TOKEN_KEY"].encode()
MAX_BODY = 2 << 20
# Lists of what is passed on: whatever else a client sends, X-Sandbox-* in every spelling and the
# token among it, ends here.
TO_SANDBOXD = {"accept", "content-length", "content-type", "last-event-id", "sandbox-request-id"}
TO_CLIENT = {"allow", "cache-control", "content-length", "content-type", "retry-after",
             "sandbox-api-version", "sandbox-degraded", "sandbox-request-id"}

app = FastAPI(openapi_url=None)


@app.on_event("startup")
async def open_session():
    app.state.sandboxd = aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(SOCKET, limit=0), auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None), skip_auto_headers=["Accept-Encoding"])


@app.on_event("shutdown")
async def close_session():
    await app.state.sandboxd.close()


def identify(connection: HTTPConnection):
    """The identity headers for the bearer of the token; None: there is none, or it is not valid."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        token = connection.cookies.get("session", "")
    text, _, signature = token.partition(".")
    wanted = hmac.new(TOKEN_KEY, text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), wanted.encode()):
        return None
    claims = json.loads(base64.urlsafe_b64decode(text))
    if claims["exp"] < time.time():
        return None
    headers = {"X-Sandbox-User": claims["user"], "X-Sandbox-Scopes": claims["scopes"]}
    for name in ("workspace", "project"):
        if claims.get(name):
            headers[f"X-Sandbox-{name.title()}"] = claims[name]
    return headers


def target(connection: HTTPConnection):
    """Path and query. The server has decoded the path; what needs it is encoded again."""
    query = connection.scope["query_string"].decode("ascii")
    path = quote(connection.scope["path"])
    return URL(f"http://sandboxd{path}{'?' if query else ''}{query}", encoded=True)


@app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def forward(request: Request):
    identity = identify(request)
    if identity is None:
        raise HTTPException(401, "Authentication required", {"WWW-Authenticate": "Bearer"})
    if int(request.headers.get("content-length", 0)) > MAX_BODY:
        raise HTTPException(413, "request body too large")
    headers = {name: value for name, value in request.headers.items() if name in TO_SANDBOXD}
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    try:
        answer = await app.state.sandboxd.request(
            request.method, target(request), headers={**headers, **identity},
            data=request.stream() if has_body else None, allow_redirects=False)
    except aiohttp.ClientError as error:
        raise HTTPException(503, "service unavailable", {"Retry-After": "1"}) from error
    return StreamingResponse(
        answer.content.iter_any(), answer.status,
        {name: value for name, value in answer.headers.items() if name.lower() in TO_CLIENT},
        background=BackgroundTask(answer.release))


@app.websocket("/{path:path}")
async def relay(browser: WebSocket):
    identity = identify(browser)
    if identity is None:
        await browser.close()  # before accept(): the client sees 403
        return
    # sandboxd compares the two: pages of other sites cannot use a browser's cookie.
    both = {name: browser.headers[name] for name in ("host", "origin") if name in browser.headers}
    try:
        async with app.state.sandboxd.ws_connect(
                target(browser), headers={**both, **identity}, max_msg_size=0) as upstream:
            await browser.accept()
            tasks = [asyncio.create_task(from_sandboxd(upstream, browser)),
                     asyncio.create_task(from_browser(browser, upstream))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    except aiohttp.ClientError:
        await browser.close()


async def from_sandboxd(upstream, browser):
    async for message in upstream:
        await browser.send_text(message.data)
    await browser.close(upstream.close_code or 1011)


async def from_browser(browser, upstream):
    while (message := await browser.receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await upstream.send_str(message["text"])
        else:
            await upstream.send_bytes(message["bytes"])

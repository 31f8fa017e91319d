"""A server of very many pods, in a process of its own so that it takes no time from the one that reads them.

`python -m tests.pod_server COUNT CHANGES` prints its port, and ends when its standard input does. Whoever lists the pods gets
all of them in one answer, as from the API server's watch cache; whoever asks for a streamed list gets them one by one, unless
the path has `/plain` in front. A watch then brings this many changes as fast as they are read.
"""

import asyncio
import sys

from aiohttp import web

from tests.wire_pods import encoded_pod

COUNT, CHANGES = map(int, sys.argv[1:3])
PODS = [encoded_pod(number, 1 + number) for number in range(COUNT)]

END = b'{"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}' % COUNT


def event(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)


async def answer(request: web.Request) -> web.StreamResponse:
    if "watch" not in request.query:
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[' % COUNT
        return web.Response(body=head + b",".join(PODS) + b"]}\n", content_type="application/json")
    streamed = "sendInitialEvents" in request.query
    if streamed and request.path.startswith("/plain"):
        return web.Response(status=400)
    response = web.StreamResponse()
    await response.prepare(request)
    if streamed:
        for pod in PODS:
            await response.write(event("ADDED", pod))
        await response.write(event("BOOKMARK", END))
    for change in range(CHANGES):
        pod = encoded_pod(change * 7 % COUNT, COUNT + change + 1, phase="Pending")
        await response.write(event("MODIFIED", pod))
    await asyncio.Event().wait()
    return response


async def serve() -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())

"""/debug/pprof and /debug/flags/v: what a Python process can tell of itself, under the reference's paths.

Follows controller-manager app/serve.go and apiserver pkg/server/routes. The formats are not pprof's: a profile is a list of
stacks with how often each was seen, one a line, as flame graph tools read it.
"""

import asyncio
import io
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType

from aiohttp import web

from kcm import logs
from kcm.gotext import parse_uint
from kcm.serving.responses import not_found, text_response

#: Seconds between two looks at the stacks.
SAMPLE_PERIOD = 0.005
#: Seconds that a profile takes unless asked otherwise, and at most.
DEFAULT_SECONDS, MOST_SECONDS = 30.0, 300.0

INDEX = """\
/debug/pprof/profile?seconds=30  where the time goes: stacks of all threads with how often each was seen, for flame graphs
/debug/pprof/goroutine           what every task and thread is doing
"""


class Profiling:
    """Answers everything below /debug/pprof/."""

    def __init__(self, loops: Callable[[], Mapping[str, asyncio.AbstractEventLoop]]) -> None:
        """Make one; `loops` gives the event loops by name."""
        self._loops = loops

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """The answer."""
        what = request.path.removeprefix("/debug/pprof").strip("/")
        if what == "":
            return text_response(200, INDEX)
        if what == "goroutine":
            return text_response(200, dump(self._loops()))
        if what == "profile":
            seconds = _number(request.query.get("seconds", ""))
            if not 0 < seconds <= MOST_SECONDS:
                return text_response(400, f"seconds must be a number above 0 and up to {MOST_SECONDS:g}\n")
            return text_response(200, await asyncio.to_thread(profile, seconds))
        return not_found()


def _number(text: str) -> float:
    try:
        return float(text or DEFAULT_SECONDS)
    except ValueError:
        return -1


def profile(seconds: float) -> str:
    """Look at the stacks of all other threads for this long; one line for each stack, its count at the end."""
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    while time.monotonic() < end:
        time.sleep(SAMPLE_PERIOD)  # in a thread of its own
        for ident, frame in sys._current_frames().items():
            if ident != threading.get_ident():
                seen[";".join([names.get(ident, str(ident)), *_stack(frame)])] += 1
    return "".join(f"{stack} {count}\n" for stack, count in seen.most_common())


def _stack(frame: FrameType | None) -> list[str]:
    names: list[str] = []
    while frame is not None:
        names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}")
        frame = frame.f_back
    return names[::-1]


def dump(loops: Mapping[str, asyncio.AbstractEventLoop]) -> str:
    """The stacks of all threads, and of all tasks of these loops."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        out.write(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}\n")
    for loop_name, loop in loops.items():
        for task in asyncio.all_tasks(loop):
            out.write(f"task {task.get_name()} on the {loop_name} loop:\n")
            task.print_stack(file=out)
            out.write("\n")
    return out.getvalue()


async def set_verbosity(request: web.BaseRequest) -> web.Response:
    """Changes the log's verbosity to the number in the body of a PUT."""
    if request.method != "PUT":
        return text_response(406, "unsupported http method\n")
    text = (await request.text()).strip()
    try:
        verbosity = parse_uint(text, bits=31)
    except ValueError as error:
        return text_response(400, f"{error}\n")
    logs.set_verbosity(verbosity)
    return text_response(200, f"successfully set klog.logging.verbosity to {verbosity}\n")

"""A real browser, headless, spoken to through a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.waiting import LIMIT_S

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE: Final = (390, 844)
DESK: Final = (1280, 900)


_AT_3_AND_4: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def found() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one tab. What the page asks for and complains of is kept."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="unisono-browser-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = (
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars "
            "--no-first-run --no-default-browser-check --disable-extensions "
            "--disable-background-networking --disable-component-update --remote-debugging-pipe"
        ).split()
        # Out of the way of 3 and 4, where the browser looks for its ends of the pipe.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _AT_3_AND_4, *map(str, ends), program),
                *options,
                f"--user-data-dir={self._profile}",
            ],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._count = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for handle in (self._in, self._out):
            os.close(handle)
        shutil.rmtree(self._profile, ignore_errors=True)

    # -- the protocol ----------------------------------------------------------------------------

    def ask(self, method: str, **about: Any) -> dict[str, Any]:
        """One call and its answer; what happens meanwhile is kept."""
        self._count += 1
        told: dict[str, Any] = {"id": self._count, "method": method, "params": about}
        if self._session:
            told["sessionId"] = self._session
        os.write(self._out, json.dumps(told).encode() + b"\0")
        until = time.monotonic() + LIMIT_S
        while True:
            heard = self._next(until)
            if heard.get("id") == self._count:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']}")
                result: dict[str, Any] = heard["result"]
                return result
            self._events.append(heard)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser does not answer" if not ready else "it is gone")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def _wait_for(self, event: str) -> None:
        until = time.monotonic() + LIMIT_S
        while not any(each.get("method") == event for each in self._events):
            self._events.append(self._next(until))

    # -- a page ----------------------------------------------------------------------------------

    def open(self, page: Path, size: tuple[int, int], dark: bool = False, media: str = "") -> None:
        """Load a page anew, so wide and high, for a reader who wants light or dark."""
        width, height = size
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def value(self, script: str) -> Any:
        """What an expression is, in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that the page asked for, besides its own."""
        asked = [
            each["params"]["request"]["url"]
            for each in self._events
            if each.get("method") == "Network.requestWillBeSent"
        ]
        return asked[1:]

    def complaints(self) -> list[str]:
        """Errors and warnings of the page, as its console has them."""
        found = []
        for each in self._events:
            about = each.get("params", {})
            if each.get("method") == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"].get("text")))
            elif each.get("method") == "Runtime.consoleAPICalled":
                found.append(f"{about['type']}: {about['args']}")
            elif each.get("method") == "Log.entryAdded":
                found.append(about["entry"]["text"])
        return found

    def picture(self, whole: bool = False, clip: dict[str, float] | None = None) -> bytes:
        """What is seen, as PNG; or the whole page, or a part of it."""
        more: dict[str, Any] = {"clip": {**clip, "scale": 1}} if clip else {}
        shot = self.ask(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole or bool(clip),
            **more,
        )
        return base64.b64decode(shot["data"])

    def colours(self, png: bytes) -> int:
        """How many different colours a picture has."""
        address = "data:image/png;base64," + base64.b64encode(png).decode()
        return int(self.value(_COLOURS.replace("ADDRESS", address)))


_COLOURS: Final = """(async () => {
  const image = new Image(); image.src = "ADDRESS"; await image.decode();
  const sheet = document.createElement("canvas");
  sheet.width = image.width; sheet.height = image.height;
  const pen = sheet.getContext("2d"); pen.drawImage(image, 0, 0);
  const octets = new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
  return new Set(octets).size;
})()"""

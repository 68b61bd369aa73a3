# SPDX-License-Identifier: MIT
"""A headless Chromium that is spoken to over two pipes (the DevTools protocol),
and just enough of PNG to look at what it drew."""
import base64
import fcntl
import json
import os
import select
import signal
import subprocess
import time
import zlib

HANG_S = 60


class Browser:
    """One process, one page.  Everything that the page logs, throws or asks the
    network for is kept."""

    def __init__(self, program, profile):
        to_read, self.to_write = os.pipe()
        self.from_read, to_reply = os.pipe()
        # Chromium reads from 3 and writes to 4.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10)
                for fd in (to_read, to_reply)]

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
             "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--force-color-profile=srgb",
             "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=place,
            start_new_session=True)
        for fd in [to_read, to_reply] + ends:
            os.close(fd)
        self.pending, self.events, self.number = b"", [], 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def receive(self):
        deadline = time.monotonic() + HANG_S
        while b"\0" not in self.pending:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self.from_read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.from_read, 1 << 20)
            if not data:
                raise EOFError("the browser has gone")
            self.pending += data
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_write, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def show(self, path, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        self.call("Page.navigate", url="file://" + path)
        while not any(event["method"] == "Page.loadEventFired"
                      for event in self.events):
            self.events.append(self.receive())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key, code):
        for kind in ("rawKeyDown", "char" if key == "\r" else None, "keyUp"):
            if kind:
                self.call("Input.dispatchKeyEvent", type=kind, key=key,
                          text=key if kind == "char" else "",
                          windowsVirtualKeyCode=code)

    def noise(self):
        """What a clean page does not cause."""
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled",
               "Log.entryAdded")
        found = [event for event in self.events if event["method"] in bad]
        asked = [event["params"]["request"]["url"] for event in self.events
                 if event["method"] == "Network.requestWillBeSent"]
        return found, asked

    def pixel(self, x, y):
        """(red, green, blue) of a point of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png",
                         captureBeyondViewport=True,
                         clip={"x": int(x), "y": int(y), "width": 1,
                               "height": 1, "scale": 1})
        return first_pixel(base64.b64decode(shot["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, EOFError, RuntimeError, TimeoutError,
                subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def first_pixel(png):
    """The first pixel has nothing beside it: whatever the filter, its bytes are
    as they stand."""
    place, data = 8, b""
    while place < len(png):
        size = int.from_bytes(png[place:place + 4], "big")
        if png[place + 4:place + 8] == b"IDAT":
            data += png[place + 8:place + 8 + size]
        place += 12 + size
    return tuple(zlib.decompress(data)[1:4])

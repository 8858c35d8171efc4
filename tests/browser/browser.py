"""Drives a headless Chromium over a pipe, with only the standard library. Works only if a Chromium is installed (missing)."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for found in map(shutil.which, NAMES) if found), None)
# Long enough for a busy machine: a browser that does not answer in this time will not answer at all.
PATIENCE = 240
# What the browser says of a function that it cannot finish because the page goes to another address.
LEFT = ("navigated", "context was destroyed", "Cannot find context", "Cannot find default execution context")


def missing():
    """Why no browser can be driven here; empty if one can."""
    return "" if CHROMIUM else "no Chromium is installed (Debian: chromium-headless-shell)"


class Browser:
    """One window. Use as a context manager, or close it."""

    opened = []  # the windows that are not closed yet

    def __init__(self, width=1440, height=900, dark=False, reduced_motion=True, scale=1, script=True):
        self.profile = tempfile.mkdtemp(prefix="lynx-browser-")
        self._last = 0
        self._session = None
        self._answers = {}
        self._events = []
        self._changed = threading.Condition()
        self._ended = False
        self._start()
        Browser.opened.append(self)
        target = self.command("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self.command("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.command(f"{domain}.enable", {})
        self.command("Page.setLifecycleEventsEnabled", {"enabled": True})
        # Pages may use the clipboard and the focus as if people looked at this window alone.
        self.command("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self._override_size(width, height, scale)
        self.command("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"}]})
        self.script = script
        if not script:
            self.command("Emulation.setScriptExecutionDisabled", {"value": True})

    def _start(self):
        """The browser reads commands from its descriptor 3 and writes answers to its 4. Each ends with a zero byte."""
        commands, self._writer = os.pipe()
        self._reader, answers = os.pipe()

        def connect():  # in the child: neither descriptor may be overwritten before it is used
            low = os.dup(commands), os.dup(answers)
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(low)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update", "--mute-audio",
                 f"--user-data-dir={self.profile}"]
        if "headless-shell" not in CHROMIUM:
            flags.append("--headless=new")
        self.process = subprocess.Popen([CHROMIUM, *flags, "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=connect, pass_fds=(3, 4))
        os.close(commands)
        os.close(answers)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        rest = b""
        while chunk := os.read(self._reader, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            with self._changed:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self._events.append(message)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def command(self, name, parameters):
        self._last += 1
        number = self._last
        message = {"id": number, "method": name, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writer, data):]
        with self._changed:
            answered = self._changed.wait_for(lambda: number in self._answers or self._ended, PATIENCE)
            if not answered or number not in self._answers:
                raise RuntimeError(f"{name}: the browser {'has ended' if self._ended else 'does not answer'}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']['message']}")
        return answer["result"]

    def events(self, *methods):
        """The events of these kinds that the page has sent so far, oldest first."""
        with self._changed:
            return [event["params"] for event in self._events if event["method"] in methods]

    def _override_size(self, width, height, scale):
        self.command("Emulation.setDeviceMetricsOverride",
                     {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600})

    def resize(self, width, height=900, scale=1):
        """Gives the window another size, and waits until the page has it and is drawn in it."""
        self._override_size(width, height, scale)
        if self.script:
            self.until("return document.documentElement.clientWidth === arguments[0]", width)
        self.settle()

    def open(self, page):
        """Opens a page: a file's path, or an address."""
        url = str(page) if "://" in str(page) else pathlib.Path(page).resolve().as_uri()
        answer = self.command("Page.navigate", {"url": url})
        if answer.get("errorText"):
            raise RuntimeError(f"{url}: {answer['errorText']}")
        if "loaderId" not in answer:
            raise RuntimeError(f"{url} differs from the present address only after #, so the browser loads nothing")
        # Another page, such as the empty one that a window begins with, may still be loading.
        loaded = {"frameId": answer["frameId"], "loaderId": answer["loaderId"], "name": "load"}

        def is_loaded():
            return any(loaded.items() <= event["params"].items() for event in self._events if event["method"] == "Page.lifecycleEvent")

        with self._changed:
            if not self._changed.wait_for(is_loaded, PATIENCE):
                raise RuntimeError(f"{url} was not loaded within {PATIENCE} s")
        self.settle()

    def run(self, script, *arguments):
        """Runs a function body in the page and returns its value; the body may await."""
        expression = f"(async function () {{ {script} }}).apply(null, {json.dumps(arguments)})"
        answer = self.command("Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def until(self, script, *arguments, patience=PATIENCE):
        """Runs the function body again and again until its value is true in JavaScript. Returns this value, or True if it is an
        element. AssertionError after `patience` seconds."""
        deadline = time.monotonic() + patience
        # Only JSON values can be returned from the page, and an element is not a JSON value.
        body = f"const value = await (async function () {{ {script} }}).apply(null, arguments); return value instanceof Node ? true : value;"
        while not (value := self._value_unless_it_navigates(body, *arguments)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {patience} s: {script} {json.dumps(arguments)[:400]}")
            time.sleep(0.1)
        return value

    def _value_unless_it_navigates(self, body, *arguments):
        """The value of the function body; None if the page goes to another address meanwhile, as after a click on a link."""
        try:
            return self.run(body, *arguments)
        except RuntimeError as error:
            if not any(words in str(error) for words in LEFT):
                raise
            return None

    def settle(self):
        """Waits until two frames have been drawn."""
        if self.script:
            self.until("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); return true")

    def keys(self, *keys):
        """Presses keys on the focused element, such as "ArrowRight" or "+"."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        texts = {"Enter": "\r"}
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
                if len(key) == 1:
                    del event["code"]
                if kind == "keyDown" and (len(key) == 1 or key in texts):
                    event["text"] = texts.get(key, key)
                self.command("Input.dispatchKeyEvent", event)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})
        self.settle()

    def complaints(self):
        """The exceptions, errors and warnings that the page has caused in its console and in the browser's log. A correct page causes none."""
        found = [event["exceptionDetails"]["text"] + " " + event["exceptionDetails"].get("exception", {}).get("description", "")
                 for event in self.events("Runtime.exceptionThrown")]
        for event in self.events("Runtime.consoleAPICalled"):
            if event["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(a.get("value", a.get("description"))) for a in event["args"]))
        found += [entry["entry"]["text"] + " " + entry["entry"].get("url", "") for entry in self.events("Log.entryAdded")
                  if entry["entry"]["level"] in ("error", "warning")]
        return found

    def described(self):
        """What a person needs to understand a failure: the address, the page's text, its notable states, and what it complained
        about."""
        try:
            shown = self.run("""const states = '[aria-busy=true], progress:not([hidden]), .waiting, .old, .troubled';
                const busy = [...document.querySelectorAll(states)];
                const name = (e) => e && `${e.tagName.toLowerCase()}#${e.id}.${e.getAttribute('class') ?? ''}`;
                return [`${location.href.slice(0, 300)} · ${document.title}`, `focus: ${name(document.activeElement)}`,
                        `busy or troubled: ${busy.map(name).join(', ')}`,
                        document.querySelector('main')?.innerText ?? document.body?.innerText].join('\\n')""")
        except (RuntimeError, OSError) as error:
            shown = f"(the page does not tell its text: {error})"
        return "\n".join(["--- the page", str(shown)[:4000], "--- its complaints", *(self.complaints() or ["none"]), "---"])

    def requested(self):
        """The addresses that the page has requested."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def screenshot(self, path, whole=False):
        parameters = {"format": "png"}
        if whole:
            size = self.command("Page.getLayoutMetrics", {})["cssContentSize"]
            parameters.update(captureBeyondViewport=True,
                              clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        data = self.command("Page.captureScreenshot", parameters)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        Browser.opened.remove(self)
        try:
            self._session = None
            self.command("Browser.close", {})
            self.process.wait(30)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()
        self._thread.join(30)
        os.close(self._writer)
        os.close(self._reader)
        for _ in range(20):
            shutil.rmtree(self.profile, ignore_errors=True)
            if not pathlib.Path(self.profile).exists():
                break
            time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        if error is not None:
            error.add_note(self.described())
        self.close()

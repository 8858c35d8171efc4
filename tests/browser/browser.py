"""A headless Chromium, driven over WebDriver with the standard library alone. Use it where both programs are installed."""

import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def missing():
    """Why no browser can be driven here; empty where one can."""
    absent = [name for name, path in (("chromium", CHROMIUM), ("chromedriver", DRIVER)) if not path]
    return f"{' and '.join(absent)} not installed (Debian: chromium, chromium-driver)" if absent else ""


class Browser:
    """One window. Use as a context manager."""

    def __init__(self, width=1440, height=900, dark=False, reduced_motion=True, scale=1, script=True):
        self.profile = tempfile.mkdtemp(prefix="lynx-browser-")
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.base = f"http://127.0.0.1:{self._port()}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                     f"--window-size={width},{height}", f"--force-device-scale-factor={scale}",
                     f"--user-data-dir={self.profile}"]
        if dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        if reduced_motion:
            arguments.append("--force-prefers-reduced-motion")
        options = {"binary": CHROMIUM, "args": arguments}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        value = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{value['sessionId']}"
        self._metrics(width, height, scale)
        self.script = script
        if not script:
            self.command("Emulation.setScriptExecutionDisabled", {"value": True})

    def _port(self):
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                return int(line.rsplit("port", 1)[1].strip(" .\n"))
        raise RuntimeError("chromedriver ended before it listened")

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {json.load(error)['value'].get('message', '')[:800]}") from None

    def _metrics(self, width, height, scale):
        # The window has a smallest width; the page's own does not.
        self.command("Emulation.setDeviceMetricsOverride",
                     {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600})

    def command(self, name, parameters):
        return self._call("POST", f"{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, path):
        self._call("POST", f"{self.session}/url", {"url": pathlib.Path(path).resolve().as_uri()})
        self.settle()

    def run(self, script, *arguments):
        """The value of a function body in the page."""
        return self._call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def settle(self):
        """Until two frames have been drawn."""
        if not self.script:
            return
        self._call("POST", f"{self.session}/execute/async", {"script": "const done = arguments[0]; requestAnimationFrame(() => "
                                                             "requestAnimationFrame(() => done(1)));", "args": []})

    def keys(self, *keys):
        """Key presses on the focused element, such as "ArrowRight" or "+"."""
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                event = {"type": kind, "key": key}
                if len(key) == 1 and kind == "keyDown":
                    event["text"] = key
                self.command("Input.dispatchKeyEvent", event)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})
        self.settle()

    def log(self, kind="browser"):
        return self._call("POST", f"{self.session}/se/log", {"type": kind})

    def screenshot(self, path, whole=False):
        parameters = {"format": "png"}
        if whole:
            width, height = self.run("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")
            parameters.update(captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        data = self.command("Page.captureScreenshot", parameters)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        try:
            self._call("DELETE", self.session)
        finally:
            self.driver.terminate()
            try:
                self.driver.wait(10)
            except subprocess.TimeoutExpired:
                self.driver.kill()
            self.driver.stdout.close()
            for _ in range(20):
                shutil.rmtree(self.profile, ignore_errors=True)
                if not pathlib.Path(self.profile).exists():
                    break
                time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

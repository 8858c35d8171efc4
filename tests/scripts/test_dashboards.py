"""Tests that scripts/dashboards.py talks directly to the servers that it starts, not through a proxy."""

import http.server
import os
import pathlib
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import dashboards


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


class AnswersTest(unittest.TestCase):
    def test_of_a_server_on_this_machine_whatever_proxy_there_is_for_the_web(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Ready)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}):
            self.assertTrue(dashboards.answers(f"{url}/ready"))
            self.assertFalse(dashboards.answers(f"{url}/starting"))


if __name__ == "__main__":
    unittest.main()

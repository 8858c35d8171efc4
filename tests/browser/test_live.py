"""The server's live page in a real browser: a cluster that trains, a server that is killed and comes back, and texts that contain scripts.

Runs where a Chromium is installed; elsewhere it says so and ends with status 77.
"""

import base64
import json
import pathlib
import subprocess
import sys
import urllib.request

import browser
import checks
import studio

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import cluster  # noqa: E402

# Holds the answer to the next question about the cluster, and changes its version. window.release() gives it to the page.
HELD = """const real = window.fetch;
let first = true;
window.fetch = async (path, options) => {
  const reply = await real(path, options);
  if (path !== '/api/cluster' || !first) return reply;
  first = false;
  const cluster = await reply.json();
  await new Promise((done) => { window.release = done; });
  return new Response(JSON.stringify({...cluster, version: 'of before'}));
}"""
# Holds the next list of nodes until window.release() is called.
HELD_NODES = """const real = window.fetch, released = new Promise((done) => { window.release = done; });
window.fetch = async (path, options) => {
  const reply = await real(path, options);
  if (path.startsWith('/api/nodes')) await released;
  return reply;
}"""
HARM = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


class LiveTest(checks.PageChecks, cluster.ClusterTest):
    def address(self):
        return (self.home / "server" / "page.address").read_text().strip()

    def opened(self, **options):
        window = browser.Browser(**options)
        self.addCleanup(window.close)
        window.open(f"http://{self.address()}/")
        window.until("return document.querySelectorAll('#map .cell').length === 2")
        return window

    def assert_whole(self, window, where):
        self.assertNotIn("taken", window.run("return document.title"))
        self.assert_no_complaints(window)
        self.assert_readable(window, where)
        self.assert_named(window)
        self.assertEqual(window.run("return document.getAnimations().length"), 0)
        for width in (1440, 360):
            window.resize(width)
            self.assert_fits(window, f"{where}, {width}")
        window.resize(1440)

    def test_a_job_that_trains(self):
        self.assertEqual(self.ctl("node", "cordon", "node1", "--reason", HARM).code, 0)
        self.assertEqual(self.ctl("node", "uncordon", "node1").code, 0)
        window = self.opened()
        window.until("const labels = [...document.querySelectorAll('#map .cell')].map((e) => e.getAttribute('aria-label')); "
                     "return JSON.stringify(labels) === JSON.stringify(arguments[0])",
                     ["node0: ready, 0 of 2 devices busy", "node1: ready, 0 of 2 devices busy"])
        self.assertIn("none yet", window.run("return document.getElementById('jobs-aside').textContent"))

        job = self.submit(self.job_file(steps=100000, memory="400KiB", every=5000))
        window.until("return document.querySelector('tr[data-job] .state.running')")
        window.until("return document.querySelector('#map .cell').getAttribute('aria-label') === 'node0: ready, 2 of 2 devices busy'")
        window.until("return Number(document.querySelector('tr[data-job] progress').value) > 0")
        self.assert_whole(window, "cluster")

        # With keys alone: from node to node, into a node, and on to the job.
        window.run("document.querySelector('#map .cell').focus()")
        window.keys("ArrowRight")
        self.assertIn("node1", window.run("return document.getElementById('node-line').textContent"))
        window.keys("Enter")
        window.until("return document.querySelector('#node-detail a')")
        self.assertEqual(window.run("return document.activeElement.getAttribute('aria-expanded')"), "true")
        window.run("document.querySelector('tr[data-job] a').focus()")
        window.keys("Enter")
        parts = ["head", "figures", "run", "step", "recomputation", "memory", "loss", "plan", "events"]
        window.until("const parts = [...document.querySelectorAll('#job-parts > *')].map((e) => e.dataset.part); "
                     "return JSON.stringify(parts) === JSON.stringify(arguments[0]) && document.querySelector('#step svg') && "
                     "document.querySelector('#memory svg.plot') && document.querySelector('#memory .fall')", parts)
        lanes = window.run("return [...document.querySelectorAll('#step svg text')].map((e) => e.textContent)")
        self.assertEqual((lanes.count("predicted"), lanes.count("measured")), (2, 2))
        window.run("document.querySelector('#loss details').open = true; document.querySelector('#loss summary').focus()")
        before = window.run("return document.querySelector('#loss').innerHTML")
        window.until("return document.querySelector('#loss').innerHTML !== arguments[0]", before)
        self.assertEqual(window.run("return [document.querySelector('#loss details').open, document.activeElement.tagName]"), [True, "SUMMARY"],
                         "what people have opened and where they are stays")
        self.assert_whole(window, "job")

        self.assertEqual(self.ctl("cancel", job, "--reason", HARM).code, 0)
        window.until("return document.querySelector('#events').textContent.includes('<script>')")
        window.until("return document.title.includes('cancelled')")
        self.assertNotIn("taken", window.run("return document.title"))
        self.assertEqual(window.run("return document.querySelectorAll('#job-parts script, #job-parts img').length"), 0)
        self.assert_no_complaints(window)
        window.run("document.getElementById('back').click()")
        window.until("return !document.getElementById('cluster-view').hidden && document.querySelector('.state.cancelled')")

        # The address of another job, which the server refuses. Nothing of the first job may be shown there.
        window.run("location.hash = 'job=' + arguments[0]", job)
        window.until("return document.querySelectorAll('#job-parts > *').length > 0")
        window.run("location.hash = 'job=nobody'")
        window.until("const lost = document.getElementById('lost'); "
                     "return !lost.hidden && lost.textContent.startsWith('The server says')")
        self.assertEqual(window.run("return [document.querySelectorAll('#job-parts > *').length, document.title]"), [0, "Lynx job"])

    def nodes_of_this_cluster(self):
        with urllib.request.urlopen(f"http://{self.address()}/studio/api/choices", timeout=200) as reply:
            return [machine["nodes"] for machine in json.load(reply)["machines"] if machine["name"] == "this cluster"]

    def test_the_studio_is_a_tab_that_plans_for_this_cluster(self):
        self.await_on_disk(lambda: self.nodes_of_this_cluster() == [2], "two nodes that have been measured")
        window = self.opened()
        window.run("[...document.querySelectorAll('.tabs a')].find((e) => e.textContent === 'Studio').click()")
        window.until("return location.pathname === '/studio/' && document.querySelector('#tabs:not([hidden])')")
        self.assertEqual(window.run("return [...document.getElementById('machine').options].map((e) => e.value)")[0], "this cluster")
        # A model that two nodes of two CPU ranks hold.
        window.open(f"http://{self.address()}/")  # only another fragment would load nothing
        window.open(f"http://{self.address()}/studio/" + studio.fragment(
            {"machine": {"name": "this cluster"}, "job": {"model.layers": 4, "model.hidden": 64, "model.heads": 4, "model.seq": 32,
                                                          "model.vocab": 256, "train.globalBatch": 8, "resources.ranks": 4}}))
        window.until(studio.RESTS)
        self.assertIn("2 nodes of 2 devices", window.run("return document.getElementById('machine-facts').textContent"))
        self.assertTrue(window.run("return document.querySelector('#view svg') !== null"))
        self.assertTrue(window.run("return document.getElementById('cluster-note').hidden"))
        self.assertEqual(window.run("return document.querySelector('.tabs [aria-current]').textContent"), "Studio")
        self.assert_whole(window, "studio")
        # A copied link holds the cluster as it is now.
        held = window.run("window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }; "
                          "document.getElementById('copy').click(); "
                          "[...document.querySelectorAll('#copy-menu [role=menuitem]')].find((e) => /link/i.test(e.textContent)).click(); "
                          "return window.copied")
        text = base64.urlsafe_b64decode(held.split("#s=")[1] + "==").decode()
        self.assertIn("kind: Cluster", json.loads(text)["machine"]["text"])
        window.run("[...document.querySelectorAll('.tabs a')].find((e) => e.textContent === 'Cluster').click()")
        window.until("return document.querySelectorAll('#map .cell').length === 2")

    def test_a_studio_without_nodes_offers_the_ready_made_machines(self):
        self.await_on_disk(lambda: self.nodes_of_this_cluster() == [2], "two nodes that have been measured")
        for node in ("node0", "node1"):
            self.assertEqual(self.ctl("node", "cordon", node, "--reason", "work").code, 0)
        self.await_on_disk(lambda: self.nodes_of_this_cluster() == [], "no nodes that take ranks")
        window = self.opened()
        window.open(f"http://{self.address()}/studio/")
        window.until(studio.PLANNED)
        self.assertIn("No node of this cluster", window.run("return document.getElementById('cluster-note').textContent"))
        self.assertFalse(window.run("return document.getElementById('cluster-note').hidden"))
        self.assertNotIn("this cluster", window.run("return [...document.getElementById('machine').options].map((e) => e.value)"))
        self.assert_no_complaints(window)

    def assert_older_answers_are_dropped(self, window):
        """An answer that comes after that to a newer question would show what was before."""
        subtitle = "return document.getElementById('subtitle').textContent"  # it has the time of the answer
        window.run(HELD)
        window.until("return typeof window.release === 'function'")
        before = window.run(subtitle)
        window.run("document.dispatchEvent(new Event('visibilitychange'))")  # the page looks again
        window.until(f"return (() => {{ {subtitle} }})() !== arguments[0]", before)
        window.run("window.release()")
        window.settle()
        self.assertNotIn("of before", window.run(subtitle))

    def assert_the_nodes_of_a_cell_that_is_gone_stay_away(self, window):
        """The cell of an open list of nodes goes away while the list is asked for."""
        window.run(HELD_NODES)
        left = window.run("""clearTimeout(timer);  // no look of the page's own meanwhile
            ++round;
            const asked = showNodes(), kept = cells;
            cells = [];
            await showNodes();
            cells = kept;
            window.release();
            await asked;
            return [document.getElementById('node-detail').hidden, document.getElementById('node-detail').textContent]""")
        self.assertEqual(left, [True, ""])
        window.run("turn()")
        window.until("return document.getElementById('node-detail').textContent.includes('<script>')")

    def test_a_server_that_is_gone_and_back(self):
        address, server = self.address(), self.daemon("server")
        self.assertEqual(self.ctl("node", "cordon", "node1", "--reason", HARM).code, 0)
        window = self.opened(dark=True)
        window.until("return document.querySelector('#map .cell.cordoned')")
        window.run("document.querySelector('#map .cell.cordoned').click()")
        window.until("return document.getElementById('node-detail').textContent.includes('<script>')")
        self.assertEqual(window.run("return document.querySelectorAll('#node-detail img, #node-detail script').length"), 0)
        self.assert_older_answers_are_dropped(window)
        self.assert_the_nodes_of_a_cell_that_is_gone_stay_away(window)
        self.assert_whole(window, "dark")
        self.kill_daemon("server")
        told = window.until("const lost = document.getElementById('lost'); return !lost.hidden && lost.textContent")
        self.assertIn("The server does not answer. What is shown is of ", told)
        self.assertEqual(window.run("return document.getElementById('lost').getAttribute('role')"), "alert")
        self.assertEqual(window.run("return document.querySelectorAll('#map .cell').length"), 2, "what was known stays")
        log = (self.directory / "server-again.log").open("w")
        self.addCleanup(log.close)
        again = subprocess.Popen([*server["argv"], f"--page-address={address}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(again.wait)
        self.addCleanup(again.kill)
        window.until("return document.getElementById('lost').hidden")
        window.until("return document.querySelector('#map .cell.cordoned')")
        complaints = [text for text in window.complaints() if "ERR_CONNECTION" not in text and "ERR_EMPTY_RESPONSE" not in text]
        self.assertEqual(complaints, [])


if __name__ == "__main__":
    checks.main()

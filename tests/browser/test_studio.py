"""The studio (`lynxctl studio`) in a real browser: people choose a model and a machine, and see the plan at once.

Runs where a Chromium is installed; elsewhere it says so and ends with status 77.
"""

import base64
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import browser
import checks
import pictures
from studio import BESIDE, BIN, DROP, PLANNED, RESTS, ROOT, STATE, STEP, Studio, StudioCase, fragment

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
          "num_key_value_heads": 4, "num_hidden_layers": 22, "vocab_size": 32000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}

# This script runs before the page's scripts. It keeps each text that is written on a canvas, where the text begins and ends, and
# whether it was made narrower.
WRITTEN = """window.written = []; { const real = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...most) {
  window.written.push([text, x, x + this.measureText(text).width, most.length > 0]);
  return real.call(this, text, x, y, ...most);
}; }"""
# Before the page's scripts: keeps each text of the short message, which is shown for a few seconds.
TOASTS = """window.toasts = []; new MutationObserver(() => {
  const toast = document.getElementById('toast');
  if (toast && !toast.hidden && window.toasts.at(-1) !== toast.textContent) window.toasts.push(toast.textContent);
}).observe(document, {attributes: true, childList: true, characterData: true, subtree: true});"""
class StudioTest(StudioCase, unittest.TestCase):
    def assert_whole(self, window, where):
        self.assert_no_complaints(window)
        self.assert_readable(window, where)
        self.assert_named(window)
        self.assertEqual(window.run("return document.getAnimations().length"), 0, where)

    def test_the_first_page(self):
        for dark in (False, True):
            window = self.rested(self.opened(None, dark=dark))
            where = "dark" if dark else "light"
            for sections in ("figures", "timeline-title", "breakdown-title", "memory-title", "frontier", "why"):
                self.assertTrue(window.run("return document.querySelector(`#view .${arguments[0]}, #${arguments[0]}`)?.checkVisibility()", sections), sections)
            self.assertGreater(window.run("return document.querySelectorAll('#frontier .mark').length"), 3)
            self.assertGreater(window.run("return document.querySelectorAll('#policies tbody tr').length"), 3)
            self.assertEqual(window.run("return document.querySelectorAll('#policies tr.chosen').length"), 1)
            self.assertRegex(window.run("return document.getElementById('why').textContent"), r"^[A-Z].*\.$")
            self.assertIn(window.run(STEP).split()[0], window.until("return document.getElementById('said').textContent"))
            window.run("for (const d of document.querySelectorAll('details')) d.open = true")
            self.assert_whole(window, where)
            for width in (1440, 768, 360):
                window.resize(width)
                self.assert_fits(window, f"{where}, {width}")
                small = window.run("return [...document.querySelectorAll('button, select, input')].filter((e) => e.checkVisibility() && e.type !== 'checkbox' && "
                                   "!e.matches('.own, .chart *') && e.getBoundingClientRect().height < 24).map((e) => e.outerHTML)")
                self.assertEqual(small, [])
            elsewhere = [url for url in window.requested() if not url.startswith((self.studio.address, "data:", "about:", "chrome:"))]
            self.assertEqual(elsewhere, [])

    def test_the_plan_follows_model_and_sliders(self):
        window = self.rested(self.opened())
        first = window.run(STEP)
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder) / "job.yaml"
            job.write_text("apiVersion: lynx/v1\nkind: TrainingJob\nname: same\nmodel: {preset: gpt-6.7b}\ndata: {kind: megatron, path: corpus}\n"
                           "train: {steps: 10, globalBatch: 64, microBatch: 4}\nresources: {ranks: 8}\nparallel: {tp: 4, pp: 2, schedule: 1f1b, weave: off}\n")
            table = subprocess.run([BIN / "lynxctl", "plan", "-f", job, "--cluster", ROOT / "examples/clusters/a100-40gb-pcie.yaml", "--nodes", "1"],
                                   check=True, capture_output=True, text=True, timeout=browser.PATIENCE).stdout
        self.assertEqual(first, re.search(r"predicted: step ([^,]+),", table).group(1), "the page and lynxctl plan differ")

        self.choose(window, "model", "gpt-1.3b")
        second = self.changed(window, first)
        self.assertIn("24 layers", window.run("return document.getElementById('model-facts').textContent"))
        window.run("document.getElementById('slide-model-seq').focus()")
        window.keys("ArrowRight", "ArrowRight")
        third = self.changed(window, second)
        self.assertEqual(self.state(window)["job"]["model.seq"], 4096)
        self.assertEqual(window.run("return document.getElementById('slide-model-seq-number').value"), "4096")
        self.assertEqual(window.run("return document.getElementById('slide-model-seq').getAttribute('aria-valuetext')"), "4,096")
        self.choose(window, "slide-train-microBatch-number", "2")
        self.changed(window, third)
        self.assertEqual(self.state(window)["job"]["train.microBatch"], 2)
        window.run("document.querySelector('[data-field=\"model.seq\"] .own').click()")
        self.assertNotIn("model.seq", self.state(window)["job"])
        self.choose(window, "slide-nodes-number", "many")
        self.assertIn("'many' is not a whole number from 1", window.run(BESIDE, "nodes"))
        self.assert_no_complaints(window)

    def test_only_the_newest_of_many_changes_counts(self):
        window = self.rested(self.opened())
        window.run("""const slider = document.getElementById('slide-memoryBytes');
            for (let i = 0; i < 40; ++i) {
              slider.value = Number(slider.max) - i % 5;
              slider.dispatchEvent(new Event('input', {bubbles: true}));
              await new Promise((done) => setTimeout(done, 15));
            }
            slider.value = slider.max;
            slider.dispatchEvent(new Event('input', {bubbles: true}));
            slider.dispatchEvent(new Event('change', {bubbles: true}));""")
        self.rested(window)
        most = window.run("return window.most")
        self.assertEqual(set(most.values()), {1}, most)
        state = self.state(window)
        alone = self.rested(self.opened(state))
        self.assertEqual(window.run(STEP), alone.run(STEP))
        self.assertNotEqual(state["memoryBytes"], 0)

    def test_a_config_json_is_dropped(self):
        window = self.rested(self.opened())
        before = window.run(STEP)
        window.run(DROP, "tiny-llama.json", json.dumps(CONFIG))
        self.changed(window, before)
        self.assertEqual(window.run("const m = document.getElementById('model'); return m.selectedOptions[0].text"), "tiny-llama.json")
        self.assertEqual(json.loads(self.state(window)["model"]["config"]), CONFIG)
        self.assertIn("tiny-llama.json", window.run("return document.title"))

        window.run(DROP, "broken.json", json.dumps({**CONFIG, "hidden_size": "many"}))
        told = window.until(BESIDE, "model")
        self.assertIn("hidden_size", told)
        self.assertTrue(window.run("return document.getElementById('trouble').hidden"))
        self.assertEqual(window.run("return document.getElementById('model').getAttribute('aria-invalid')"), "true")
        self.assertIn("hidden_size", window.until("const said = document.getElementById('said').textContent; return said.startsWith('Not planned') && said"))
        self.choose(window, "model", "gpt-1.3b")
        window.until("return !document.body.matches('.troubled')")
        self.assertEqual(window.run("return document.querySelectorAll('#form .error:not([hidden])').length"), 0)
        self.assertEqual(window.run("return [...document.getElementById('model').options].filter((o) => o.text.endsWith('.json')).length"), 0)
        self.assert_no_complaints(window)

    def test_an_edited_machine_and_its_error(self):
        window = self.rested(self.opened())
        before = window.run(STEP)
        window.run("document.getElementById('machine-edit').open = true")
        text = window.run("return document.getElementById('machine-text').value")
        self.assertEqual(text, (ROOT / "examples/clusters/a100-40gb-pcie.yaml").read_text())
        self.choose(window, "machine-text", text.replace("memoryBandwidth", "memoryBandwith"))
        told = window.until(BESIDE, "machine")
        self.assertIn("memoryBandwith", told)
        line = next(i for i, words in enumerate(text.splitlines(), 1) if "memoryBandwidth" in words)
        window.run("document.querySelector('[data-field=machine] .error button').click()")
        chosen = window.run("const t = document.getElementById('machine-text'); return [document.activeElement.id, t.value.slice(t.selectionStart, t.selectionEnd)]")
        self.assertIn(f"Go to line {line}", told)
        self.assertEqual(chosen, ["machine-text", text.splitlines()[line - 1].replace("memoryBandwidth", "memoryBandwith")])
        self.assert_whole(window, "an error beside the machine")

        slower = re.sub(r"(node:\s+latency: [^\n]*\n\s+bandwidth: \{value: )[\d.]+", r"\g<1>1", text)
        self.assertNotEqual(slower, text)
        self.choose(window, "machine-text", slower)
        self.changed(window, before)
        self.assertEqual(self.state(window)["machine"]["text"], slower)
        window.run("document.getElementById('machine-back').click()")
        window.until(f"return (() => {{ {STEP} }})() === arguments[0]", before)
        self.assertEqual(self.state(window)["machine"], {"name": "a100-40gb-pcie"})

    def test_what_does_not_fit_and_the_smallest_change(self):
        window = self.rested(self.opened())
        self.choose(window, "size-tp", "")
        self.choose(window, "size-pp", "")
        self.choose(window, "model", "gpt-20.2b")
        apply = window.until("return document.getElementById('apply')?.textContent")
        self.assertIn("Apply the smallest change", apply)
        self.assertEqual(window.run("return document.getElementById('trouble').getAttribute('role')"), "alert")
        self.assertIn("GiB", window.run("return document.getElementById('trouble').textContent"))
        self.assertIn("Below stands the last plan, of gpt-", window.run("return document.getElementById('trouble').textContent"))
        self.assertTrue(window.run("return document.getElementById('pin').disabled"))
        before = self.state(window)
        window.run("document.getElementById('apply').click()")
        window.until("return document.getElementById('trouble').hidden && !document.querySelector('.waiting') && document.title.includes('gpt-20.2b')")
        self.assertNotEqual(self.state(window), before)
        self.assert_no_complaints(window)

    def test_pinned_plans_are_compared(self):
        window = self.rested(self.opened())
        first = window.run(STEP)
        window.run("document.getElementById('pin').click()")
        self.assertTrue(window.run("return document.getElementById('pin').disabled"), "the same plan is not pinned twice")
        self.choose(window, "recompute", "full")
        second = self.changed(window, first)
        heads = window.run("return [...document.querySelectorAll('#comparison thead th')].map((e) => e.textContent)")
        self.assertEqual(heads, ["A", "now"])
        window.run("document.getElementById('pin').click()")
        rows = dict(window.run("return [...document.querySelectorAll('#comparison tbody tr')].map((r) => [r.cells[0].textContent, [...r.cells].slice(1).map((c) => c.textContent.trim())])"))
        self.assertEqual(rows["recompute"][1], "full")
        self.assertNotIn("model", rows, "only rows that differ, at first")
        self.assertEqual(rows["step"][0], first)
        self.assertRegex(rows["step"][1], f"^{re.escape(second)} \\+\\d+\\.\\d%$")
        self.assertEqual(window.run("return document.querySelector('#comparison .delta').className"), "delta bad")
        window.run("document.getElementById('all-rows').click()")
        self.assertIn("model", window.run("return [...document.querySelectorAll('#comparison tbody th')].map((e) => e.textContent)"))
        self.assert_whole(window, "pinned")
        for width in (768, 360):
            window.resize(width)
            self.assert_fits(window, f"pinned, {width}")
        window.resize(1440)

        window.run("document.querySelector('#pins article button').click()")  # shows A again
        window.until(f"return (() => {{ {STEP} }})() === arguments[0]", first)
        self.assertNotIn("recompute", self.state(window)["job"])
        for mode in ("selective", "uniform", "block"):
            self.choose(window, "recompute", mode)
            window.until("return location.hash && !document.querySelector('.waiting, .troubled') && !document.getElementById('pin').disabled || "
                         "document.querySelectorAll('#pins article').length === 4")
            window.run("document.getElementById('pin').click()")
        self.assertEqual(window.run("return [...document.querySelectorAll('#pins .letter')].map((e) => e.textContent).join('')"), "ABCD")
        self.assertEqual(window.run("return document.getElementById('pin').textContent"), "Four are pinned")
        address = window.run("return location.href")
        window.open(self.studio.address + "studio.css")
        window.open(address)
        window.until("return document.querySelectorAll('#pins article').length === 4")
        window.run("document.querySelector('[aria-label=\"Remove plan B\"]').click()")
        self.assertEqual(window.run("return [...document.querySelectorAll('#pins .letter')].map((e) => e.textContent).join('')"), "ACD")
        window.run("document.getElementById('unpin-all').click()")
        self.assertTrue(window.run("return document.getElementById('pinned').hidden"))

    def test_layers_of_interleaved_stages_are_readable_beside_the_timeline(self):
        window = browser.Browser()
        self.addCleanup(window.close)
        window.command("Page.addScriptToEvaluateOnNewDocument", {"source": WRITTEN})
        for stages, virtual in ((8, 5), (16, 5), (4, 1)):
            state = {"model": {"preset": "llama-65b"}, "machine": {"name": "a100-80gb-nvlink"}, "nodes": 8,
                     "job": {"train.globalBatch": 32, "train.microBatch": 1, "parallel.tp": 4, "parallel.pp": stages, "parallel.virtualStages": virtual}}
            window.open(self.studio.address + "studio.css")
            window.open(self.studio.address + fragment(state))
            window.until("return document.querySelector('#view .figures .value')")
            window.settle()
            written = window.run("return window.written.filter(([text, x]) => x < 110 && /^(embed )?\\d/.test(text))")
            self.assertGreaterEqual(len(written), stages)
            for text, _, end, squeezed in written:
                self.assertLessEqual(end, 114.5, text)
                self.assertFalse(squeezed, text)
            more = [text for text, *_ in written if " more" in text]
            self.assertEqual(more == [], virtual == 1, written)
        self.assert_no_complaints(window)

    def test_a_long_search_ends_with_its_page(self):
        long = {"model": {"preset": "gpt-1t"}, "machine": {"name": "a100-80gb-nvlink"}, "nodes": 512, "job": {"train.globalBatch": 4096}}
        for leave in ("other page", "closed"):
            window = browser.Browser()
            self.addCleanup(window.close)
            window.open(self.studio.address + fragment(long))
            window.until("return document.querySelector('#progress:not([hidden])')")
            self.wait(lambda: self.planners(), "the search begins")
            before = self.planners()
            if leave == "closed":
                window.process.kill()
            else:
                window.open(self.studio.address + "studio.css")
            self.wait(lambda: not set(before) & set(self.planners()), f"the search ends: {leave}")

    def planners(self):
        """The processes that answer questions of the studio now."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = stat.read_text().partition("(")[2].rpartition(") ")
            except OSError:  # it has ended
                continue
            state, parent = rest.split()[:2]
            if int(parent) == self.studio.process.pid and name == "lynx-studio" and state != "Z":
                found.append(stat.parent.name)
        return found

    def wait(self, condition, what):
        end = time.monotonic() + browser.PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, f"waited too long: {what}")
            time.sleep(0.05)

    def test_every_format_can_be_copied(self):
        window = self.rested(self.opened())
        window.command("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        step = window.run(STEP)
        for format_, words in (("job", "kind: TrainingJob"), ("megatron", "--tensor-model-parallel-size"), ("deepspeed", "train_micro_batch_size_per_gpu"), ("torchtitan", "tensor_parallel_degree")):
            window.run("document.getElementById('copy').click(); document.querySelector('[data-format=' + arguments[0] + ']').click()", format_)
            window.until("return document.getElementById('export').open")
            shown = window.run("return [...document.querySelectorAll('#export pre')].map((e) => e.textContent)")
            self.assertTrue(any(words in text for text in shown), (format_, shown))
            self.assertIn("copied", window.run("return document.querySelector('#export [role=status]').textContent"), format_)
            self.assertEqual(window.run("return navigator.clipboard.readText()"), shown[0], format_)
            self.assert_named(window)
            if format_ == "job":
                self.assert_the_job_file_gives_the_same(shown, step)
            window.keys("Escape")
            window.until("return !document.getElementById('export').open && document.activeElement.id === 'copy'")
        window.run("document.getElementById('copy').click(); document.querySelector('[data-format=link]').click()")
        link = window.until("const text = await navigator.clipboard.readText(); return text.startsWith('http') && text")
        self.assertEqual(link, window.run("return location.href"))
        self.assert_no_complaints(window)

        other = browser.Browser()
        self.addCleanup(other.close)
        other.open(link)
        self.rested(other)
        self.assertEqual(other.run(STEP), step)
        self.assertEqual(self.state(other), self.state(window))
        self.assertEqual(other.run("return ['model', 'machine', 'size-tp', 'slide-train-microBatch-number'].map((id) => document.getElementById(id).value)"),
                         ["gpt-6.7b", "a100-40gb-pcie", "4", "4"])

    def assert_the_job_file_gives_the_same(self, files, step):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("job.yaml", "cluster.yaml")]
            for path, text in zip(paths, files):
                path.write_text(text)
            made = subprocess.run([BIN / "lynxctl", "plan", "-f", paths[0], "--cluster", paths[1], "--nodes", "1"],
                                  capture_output=True, text=True, timeout=browser.PATIENCE)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(step, re.search(r"predicted: step ([^,]+),", made.stdout).group(1))

    def test_with_keys_alone(self):
        window = self.rested(self.opened())
        reached = []
        for _ in range(60):
            window.keys("Tab")
            here, ring = window.run("const e = document.activeElement, s = getComputedStyle(e); "
                                    "return [e.id || e.getAttribute('class') || e.tagName, s.outlineStyle !== 'none' || e.matches('[type=range], .mark')]")
            if here == "studio":
                continue  # the body: the browser's own controls come after the last of the page
            reached.append(here)
            self.assertTrue(ring, f"the focus is not visible on {here}")
        for wanted in ("pin", "copy", "theme", "model", "drop", "machine", "slide-memoryBytes", "slide-memoryBytes-number", "slide-linkScale", "size-tp", "recompute", "find", "lanes"):
            self.assertIn(wanted, reached)

        window.run("document.getElementById('find').focus()")
        window.keys(*"ZeroGr", "ArrowDown")
        self.assertEqual(window.run("return document.getElementById(document.getElementById('find').getAttribute('aria-activedescendant')).querySelector('b').textContent"), "parallel.zeroGroup")
        window.keys("Escape")
        self.assertTrue(window.run("return document.getElementById('found').hidden"))
        window.run("document.getElementById('find').value = ''")
        window.keys(*"model.dtype", "Enter")
        self.assertEqual(window.run("return document.activeElement.id"), "field-model.dtype")
        before = window.run(STEP)
        self.choose(window, "field-model.dtype", "float32")
        self.changed(window, before)
        self.assertEqual(self.state(window)["job"]["model.dtype"], "float32")
        window.run("document.querySelector('[data-field=\"model.dtype\"] .remove').focus()")
        window.keys("Enter")
        window.until(f"return (() => {{ {STEP} }})() === arguments[0]", before)
        self.assertEqual(window.run("return document.activeElement.id"), "field-parallel.weave", "the field of the row beside it")

        window.run("document.getElementById('copy').focus()")
        window.keys("ArrowDown")
        self.assertEqual(window.run("return [document.activeElement.getAttribute('role'), document.activeElement.dataset.format]"), ["menuitem", "job"])
        window.keys("ArrowUp")
        self.assertEqual(window.run("return document.activeElement.dataset.format"), "link")
        window.keys("Escape")
        self.assertEqual(window.run("return [document.activeElement.id, document.getElementById('copy-menu').hidden]"), ["copy", True])

    def test_a_field_that_is_wrong(self):
        window = self.rested(self.opened())
        self.choose(window, "size-tp", "5")
        self.assertIn("parallel.tp", window.until(BESIDE, "parallel.tp"))
        self.choose(window, "size-tp", "4")
        window.until("return !document.body.matches('.troubled')")
        self.choose(window, "size-tp", "four")
        self.assertIn("'four' is not a whole number", window.run(BESIDE, "parallel.tp"))
        window.run("location.hash = arguments[0]", fragment({**STATE, "job": {**STATE["job"], "parallel.zero": "everything"}}))
        self.assertIn("everything", window.until(BESIDE, "parallel.zero"))
        self.assert_no_complaints(window)

    def test_what_a_policy_alone_has_goes_with_it(self):
        window = self.rested(self.opened())
        for policy, field, value in (("selective", "recomputeOptions.modules", "mlp"), ("block", "recomputeOptions.layers", 1)):
            job = {**STATE["job"], "recompute": policy, field: value}
            window.run("location.hash = arguments[0]", fragment({**STATE, "job": job}))
            window.until("return document.getElementById('recompute').value === arguments[0]", policy)
            self.choose(window, "recompute", "full")
            window.until("return JSON.parse(atob(location.hash.slice(3).replaceAll('-', '+').replaceAll('_', '/'))).job.recompute === 'full'")
            self.rested(window)
            self.assertNotIn(field, self.state(window)["job"])
        self.assert_no_complaints(window)

    def test_a_plan_that_is_too_large_to_be_drawn(self):
        window = self.rested(self.opened())
        window.run("""const real = window.fetch;
            window.fetch = async (path, options) => {
              const reply = await real(path, options);
              return path === 'api/plan' ? new Response(JSON.stringify({...await reply.json(), parts: {}, data: null})) : reply;
            }""")
        self.choose(window, "recompute", "full")
        told = window.until("const note = document.getElementById('not-drawn'); return !note.hidden && note.textContent")
        self.assertRegex(told, "too many actions to be drawn here.*a step takes .* s,")
        self.assertTrue(window.run("return document.getElementById('view').hidden"))
        window.run("document.getElementById('pin').click()")
        self.assertEqual(window.run("return document.querySelectorAll('#pins article').length"), 1)
        self.assert_no_complaints(window)

    def test_links_that_are_damaged(self):
        for broken, words in (("#s=eyJtb2", "damaged"), ("#s=" + base64.urlsafe_b64encode(b'{"weights": 1}').decode(), "'weights'")):
            window = browser.Browser()
            self.addCleanup(window.close)
            window.command("Page.addScriptToEvaluateOnNewDocument", {"source": TOASTS})
            window.open(self.studio.address + broken)
            self.assertIn(words, window.until("return window.toasts[0]"))
            window.until(PLANNED)
            self.assert_no_complaints(window)

    def test_texts_are_never_taken_as_html(self):
        harm = "<img src=x onerror=\"document.title='taken'\">"
        window = self.rested(self.opened({**STATE, "model": {"config": json.dumps({**CONFIG, "model_type": harm}), "name": harm + ".json"}}, ))
        window.until("return [...document.getElementById('model').options].some((o) => o.text.includes('onerror'))")
        self.assertEqual(window.run("return document.querySelectorAll('img').length"), 0)
        text = (ROOT / "examples/clusters/a100-40gb-pcie.yaml").read_text()
        self.choose(window, "machine-text", re.sub(r"(?m)^name: .*$", lambda _: f"name: {harm}", text))
        window.until("return location.hash.length > 4000")
        window.until(f"return document.body.matches('.troubled') || (() => {{ {RESTS} }})()")
        self.assertEqual(window.run("return document.querySelectorAll('img').length"), 0)
        self.assertNotEqual(window.run("return document.title"), "taken")
        self.assertIn("Lynx studio", window.run("return document.title"))

    def test_a_studio_that_has_ended(self):
        studio = Studio("-f", ROOT / "examples/gpt-22b.yaml", "--cluster", ROOT / "examples/clusters/h100.yaml")
        self.addCleanup(studio.close)
        window = browser.Browser()
        self.addCleanup(window.close)
        window.open(studio.address)
        self.rested(window)
        self.assertEqual(window.run("return ['model', 'machine', 'size-tp'].map((id) => document.getElementById(id).value)"), ["gpt-22b", "h100", "8"])
        self.assertEqual(studio.close(), 0)
        self.choose(window, "model", "gpt-6.7b")
        told = window.until("const t = document.getElementById('trouble'); return !t.hidden && t.textContent")
        self.assertIn("The studio does not answer. Is lynxctl studio still running?", told)
        self.assertEqual([text for text in window.complaints() if "ERR_CONNECTION" not in text and "ERR_EMPTY" not in text], [])

    def test_the_pictures_of_the_page_can_be_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            names = [name for name in pictures.HEIGHTS if name.startswith("studio")]
            pictures.take_studio(pathlib.Path(folder), names)
            for name in names:
                taken, kept = ((place / f"{name}.png").read_bytes() for place in (pathlib.Path(folder), ROOT / "docs/images"))
                self.assertEqual(taken[:8], b"\x89PNG\r\n\x1a\n")
                self.assertEqual(taken[16:24], kept[16:24], f"{name}: width and height")


if __name__ == "__main__":
    checks.main()

"""The studio's form in a real browser, while answers arrive: texts that are being typed or are refused, the errors of answers,
and answers to older questions.

Runs where a Chromium is installed; elsewhere it says so and ends with status 77.
"""

import unittest

import checks
from studio import BESIDE, DROP, SET, STEP, StudioCase

TEXT = "const e = document.getElementById(arguments[0]); return [e.value, e.getAttribute('aria-invalid')]"
# Holds the answers to the questions of one kind, until release() is called. window.held: how many are held. It takes the place
# of an earlier one.
HELD = """window.realFetch ??= window.fetch;
const real = window.realFetch, held = arguments[0];
window.held = 0;
const released = new Promise((done) => { window.release = done; });
window.fetch = async (path, options) => {
  const reply = await real(path, options);
  if (path === held) { ++window.held; await released; }
  return reply;
}"""
# Holds each plan until it is let go: window.held[i](), or window.held[i](answer) with another answer in its place.
# window.asked: the addresses that were asked.
QUEUED = """const real = window.fetch;
window.asked = [];
window.held = [];
window.fetch = async (path, options) => {
  window.asked.push(path);
  const reply = await real(path, options);
  if (path !== 'api/plan') return reply;
  const instead = await new Promise((done) => window.held.push(done));
  return instead === undefined ? reply : new Response(JSON.stringify(instead));
}"""
TROUBLE = "const t = document.getElementById('trouble'); return !t.hidden && t.textContent"


class FormTest(StudioCase, unittest.TestCase):
    def test_what_is_typed_stays_while_an_answer_arrives(self):
        window = self.rested(self.opened())
        first = window.run(STEP)
        window.run("const e = document.getElementById('slide-model-seq-number'); e.focus(); e.select()")
        window.keys("1")
        self.choose(window, "recompute", "full")
        self.changed(window, first)
        self.assertEqual(window.run("return document.getElementById('slide-model-seq-number').value"), "1")
        window.keys(*"024", "Enter")
        window.until("return document.getElementById('slide-model-seq').getAttribute('aria-valuetext') === '1,024'")
        self.assertEqual(self.state(window)["job"]["model.seq"], 1024)
        self.choose(window, "slide-memoryBytes-number", "30.3")
        self.rested(window)
        self.assertEqual(self.state(window)["memoryBytes"], round(30.3 * 2**30))

    def test_what_cannot_be_taken_stays_while_an_answer_arrives(self):
        window = self.rested(self.opened())
        before = window.run(STEP)
        wrong = (("slide-model-seq-number", "model.seq", "2,048", "'2,048' has a comma"),
                 ("size-tp", "parallel.tp", "four", "'four' is not a whole number"))
        for held in ("api/plan", "api/more"):
            window.run(HELD, held)
            self.choose(window, "recompute", "full" if held == "api/plan" else "auto")
            window.until("return window.held === 1")
            for field, path, text, words in wrong:
                said = window.run(SET + "; return document.getElementById('said').textContent", field, text)
                self.assertIn(words, said)
            window.run("window.release()")
            before = self.changed(window, before)
            for field, path, text, words in wrong:
                self.assertIn(words, window.run(BESIDE, path))
                self.assertEqual(window.run(TEXT, field), [text, "true"])
        # People put back what was there.
        self.choose(window, "slide-model-seq-number", "2048")
        self.assertFalse(window.run(BESIDE, "model.seq"))
        self.assertIn("'four'", window.run(BESIDE, "parallel.tp"))
        # They change something else: both fields show again what is planned.
        self.choose(window, "slide-model-seq-number", "many")
        self.choose(window, "recompute", "full")
        wrong = "return document.querySelectorAll('#form .error:not([hidden]), #form [aria-invalid]').length"
        self.assertEqual(window.run(wrong), 0)
        self.assertEqual([window.run(TEXT, field)[0] for field in ("slide-model-seq-number", "size-tp")], ["2048", "4"])
        self.rested(window)
        window.run("const e = document.getElementById('size-tp'); e.focus(); e.select()")
        window.keys("2")
        self.choose(window, "recompute", "auto")
        self.rested(window)
        self.assertEqual(window.run("return document.getElementById('size-tp').value"), "2")
        self.assert_no_complaints(window)

    def test_sizes_that_are_put_back_ask_nothing(self):
        window = self.rested(self.opened())
        window.run(QUEUED)
        self.choose(window, "slide-model-seq-number", "2,048")
        for field, wrong, back, shown in (("tp", "four", "4", "4"), ("pp", "two", " 2 ", "2"), ("cp", "many", "auto", ""),
                                          ("cp", "0", "", "")):
            self.choose(window, "size-" + field, wrong)
            self.assertIn(f"'{wrong}' is not a whole number", window.run(BESIDE, "parallel." + field))
            self.choose(window, "size-" + field, back)
            self.assertFalse(window.run(BESIDE, "parallel." + field))
            self.assertEqual(window.run(TEXT, "size-" + field), [shown, None])
        window.settle()
        self.assertEqual(window.run("return window.asked"), [])
        self.assertIn("'2,048' has a comma", window.run(BESIDE, "model.seq"))
        self.assertEqual(window.run(TEXT, "slide-model-seq-number"), ["2,048", "true"])
        self.choose(window, "size-tp", "2")  # a change that is one
        window.until("return window.asked.length === 1")
        self.assertFalse(window.run(BESIDE, "model.seq"))
        self.assert_no_complaints(window)

    def test_the_error_of_a_plan_is_shown_again_when_a_refused_text_is_put_right(self):
        wrong = {"field": "model.seq", "text": "model.seq is wrong: it is 2048"}
        for refused_first in (False, True):
            window = self.rested(self.opened())
            window.run(QUEUED)
            self.choose(window, "recompute", "full")
            window.until("return window.held.length === 1")
            if refused_first:
                self.choose(window, "slide-model-seq-number", "2,048")
            window.run("window.held[0]({error: arguments[0]})", wrong)
            window.until("return document.body.matches('.troubled')")
            if not refused_first:
                self.assertEqual(window.run(BESIDE, "model.seq"), wrong["text"])
                self.choose(window, "slide-model-seq-number", "2,048")
            self.assertIn("'2,048' has a comma", window.run(BESIDE, "model.seq"))
            self.choose(window, "size-tp", "four")
            self.choose(window, "size-tp", "4")
            self.assertFalse(window.run(BESIDE, "parallel.tp"), "the error is of another field")
            self.assertIn("'2,048' has a comma", window.run(BESIDE, "model.seq"))
            self.choose(window, "slide-model-seq-number", "2048")
            self.assertEqual(window.run(BESIDE, "model.seq"), wrong["text"])
            self.assertEqual(window.run(TEXT, "slide-model-seq-number"), ["2048", "true"])
            self.assertTrue(window.run("return document.body.matches('.troubled')"))
            self.assertFalse(window.run(TROUBLE))
            # It is over with the next answer, and does not come back.
            before = window.run(STEP)
            self.choose(window, "recompute", "selective")
            window.until("return window.held.length === 2")
            window.run("window.held[1]()")
            self.changed(window, before)
            self.choose(window, "slide-model-seq-number", "2,048")
            self.choose(window, "slide-model-seq-number", "2048")
            self.assertFalse(window.run(BESIDE, "model.seq"))
            self.assert_no_complaints(window)

    def test_an_error_is_shown_although_a_refused_text_has_its_place(self):
        window = self.rested(self.opened())
        window.run(QUEUED)
        self.choose(window, "recompute", "full")
        window.until("return window.held.length === 1")
        window.run(DROP, "weights.json", "x" * (513 << 10))  # of the model, whose place errors of all its fields share
        self.assertIn("weights.json has 513", window.run(BESIDE, "model"))
        window.run("window.held[0]({error: {field: 'model.hidden', text: 'model.hidden is wrong'}})")
        self.assertIn("model.hidden is wrong", window.until(TROUBLE))
        self.assertIn("weights.json has 513", window.run(BESIDE, "model"))

        # A field that people have set, and that the text of another field's error names.
        self.choose(window, "recompute", "selective")
        window.until("return window.held.length === 2")
        self.choose(window, "size-tp", "four")
        window.run("window.held[1]({error: {field: 'model.heads', text: 'model.heads is no multiple of parallel.tp'}})")
        window.until("return document.getElementById('trouble').textContent.includes('model.heads')")
        self.assertIn("'four'", window.run(BESIDE, "parallel.tp"))
        self.choose(window, "size-tp", "4")
        self.assertFalse(window.run(BESIDE, "parallel.tp"))
        self.assertIn("model.heads is no multiple", window.run(TROUBLE))
        self.assert_no_complaints(window)

    def answer_the_older(self, window, field, older, newer, *instead):
        """Asks for the plans of two values. Answers the question of the older one when the newer one waits to be asked."""
        window.run(QUEUED)
        self.choose(window, field, older)
        window.until("return window.held.length === 1")
        # The page's clock stands still meanwhile, so that the request is never old enough to give way to a newer one.
        window.run("window.clock = performance.now; performance.now = () => -1e8")
        self.choose(window, field, newer)
        window.settle()
        window.run("performance.now = window.clock; window.held[0](...arguments)", *instead)
        window.until("return window.held.length === 2")

    def test_the_smallest_change_is_offered_only_for_what_the_form_says(self):
        window = self.rested(self.opened())
        before = window.run(STEP)
        lacks = {"infeasible": {"reason": "this lacks memory", "suggestion": "micro-batch 2",
                                "set": {"job": {"train.microBatch": 2}}}}
        self.answer_the_older(window, "recompute", "full", "selective", lacks)
        self.assertIn("this lacks memory", window.until(TROUBLE))
        self.assertNotIn("micro-batch 2", window.run(TROUBLE))
        self.assertTrue(window.run("return document.getElementById('apply') === null"))
        self.assertFalse(window.run("return document.getElementById('more').hidden"))
        window.run("window.held[1](arguments[0])", lacks)
        window.until("return document.getElementById('apply') !== null")
        self.assertTrue(window.run("return document.getElementById('more').hidden"))
        window.run("document.getElementById('apply').click()")
        job = self.state(window)["job"]
        self.assertEqual((job["train.microBatch"], job["recompute"]), (2, "selective"))
        window.until("return window.held.length === 3")
        window.run("window.held[2]()")
        self.changed(window, before)
        self.assertFalse(window.run(TROUBLE))
        self.assert_no_complaints(window)

    def test_an_answer_to_an_older_question_begins_nothing(self):
        """Policies are asked only for the plan that the form says, and errors are only of what it says."""
        for field, older, newer in (("size-tp", "5", "2"), ("recompute", "full", "selective")):
            window = self.rested(self.opened())
            before = window.run(STEP)
            self.answer_the_older(window, field, older, newer)
            # Twice as long as the page waits for another change, before it asks for policies.
            window.run("await new Promise((done) => setTimeout(done, 700))")
            self.assertEqual(window.run("return window.asked"), ["api/plan", "api/plan"])
            self.assertFalse(window.run(BESIDE, "parallel.tp"))
            self.assertFalse(window.run("return document.body.matches('.troubled')"))
            window.run("window.held[1]()")
            self.changed(window, before)
            self.assertEqual(window.run("return window.asked"), ["api/plan", "api/plan", "api/more"])
            self.assert_no_complaints(window)


if __name__ == "__main__":
    checks.main()

"""The kit's limits, and its page over results that nobody vouches for: python3 -m unittest discover -s tests/gpu

Nothing here needs torch or a driver."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

import drive
import page
from steps import FAILED, HERE, LACKS, OK, SKIPPED, Kit, Step

# Hears no signal that can be ignored, in a session of its own.
DEAF = """
import os, signal, sys, time
for number in (signal.SIGABRT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print('KIT {"step": "deaf"}', flush=True)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(120)
"""


def lives(process):
    """Whether it runs; one that has ended may wait to be collected."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Limits(unittest.TestCase):
    def setUp(self):
        self.out = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def kit(self, seconds=60):
        return Kit(self.out, seconds)

    def program(self, text, *words):
        return [sys.executable, "-c", text, *words]

    def test_a_step_that_hangs_ends_at_its_limit_and_says_where_it_stood(self):
        hang = [sys.executable, "-X", "faulthandler", "-c", 'print(\'KIT {"step": "before"}\', flush=True)\nimport time\ntime.sleep(120)']
        began = time.monotonic()
        ended = self.kit().run(Step("hang", hang, 1.5, need=1))
        self.assertEqual((ended.outcome, ended.why), (FAILED, "did not end in 2 s"))
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(page.lines(self.out, "results.jsonl"), [{"step": "before"}])
        self.assertIn("line 3", ended.complaints)

    def test_what_was_said_before_a_crash_is_kept(self):
        crash = self.program('import os\nprint(\'KIT {"step": "before"}\\nKIT {"cut\', flush=True)\nos.kill(os.getpid(), 11)')
        kit = self.kit()
        ended = kit.run(Step("crash", crash, 20))
        self.assertEqual((ended.outcome, ended.why), (FAILED, "ended by SIGSEGV"))
        self.assertEqual(page.lines(self.out, "results.jsonl"), [{"step": "before"}])
        self.assertFalse(kit.ended_well())

    def test_nothing_that_a_program_does_ends_the_run(self):
        kit = self.kit()
        nameless = kit.run(Step("nameless", self.program("import os\nos.kill(os.getpid(), 40)"), 20))
        self.assertEqual((nameless.outcome, nameless.why), (FAILED, "ended by signal 40"))
        deep = kit.run(Step("deep", self.program("print('KIT ' + '[' * 100_000)"), 20))
        self.assertEqual((deep.outcome, deep.results), (OK, []))
        with unittest.mock.patch("steps.Running.ended", side_effect=OSError("no space")):
            self.assertEqual(kit.run(Step("disk", self.program(""), 20)).outcome, FAILED)

    def test_deaf_processes_end_and_those_that_they_left_behind(self):
        numbers = self.out / "numbers"
        # One has left the group, and one has not what the step's environment says.
        leaves = (f"import subprocess, sys\nfor how in (dict(start_new_session=True), dict(env={{}})):\n"
                  f"    subprocess.Popen([sys.executable, '-c', {DEAF!r}, sys.argv[1]], **how)\n")
        began = time.monotonic()
        ended = self.kit().run(Step("deaf", self.program(leaves + DEAF, numbers), 2, need=1))
        self.assertEqual((ended.outcome, ended.why), (FAILED, "did not end in 2 s"))
        self.assertLess(time.monotonic() - began, 12)
        processes = numbers.read_text().split()
        self.assertEqual(len(processes), 3)
        self.assertEqual([process for process in processes if lives(process)], [])

    def test_whoever_is_left_by_a_step_that_ends_well_is_ended(self):
        numbers = self.out / "numbers"
        leaves = (f"import subprocess, sys, os, time\nsubprocess.Popen([sys.executable, '-c', {DEAF!r}, sys.argv[1]], start_new_session=True)\n"
                  "while not os.path.exists(sys.argv[1]): time.sleep(.02)\n")
        ended = self.kit().run(Step("leaves", self.program(leaves, numbers), 20))
        self.assertEqual(ended.outcome, OK)
        self.assertFalse(lives(numbers.read_text().strip()))

    def test_a_step_says_what_it_lacked(self):
        kit = self.kit()
        kit.lacks["the driver"] = LACKS, "probe-driver"
        for step, why in (
            (Step("program", ["/nowhere/granule"], 5), "/nowhere/granule is not here"),
            (Step("driver", self.program(""), 5, wants=("the driver",)), "lacks the driver (probe-driver)"),
            (Step("module", self.program("print('KIT {\"lacks\": \"cupy\"}')"), 5), "cupy"),
        ):
            ended = kit.run(step)
            self.assertEqual((ended.outcome, ended.why), (LACKS, why))
        self.assertFalse(kit.ended_well())
        optional = self.kit()
        optional.run(Step("sanitizer", ["/nowhere/sanitizer"], 5, optional=True))
        self.assertTrue(optional.ended_well())
        kit.lacks["torch"] = SKIPPED, "probe-torch"
        self.assertEqual(kit.run(Step("hangs-on-it", self.program(""), 5, wants=("torch",))).outcome, SKIPPED)

    def test_a_wrong_result_is_a_step_that_failed(self):
        for result in ({"right": False}, {"failed": "cuInit"}, {"fails": 3}):
            ended = self.kit().run(Step("wrong", self.program(f"print('KIT ' + {json.dumps(result)!r})"), 20))
            self.assertEqual(ended.outcome, FAILED, result)
        card = self.kit().run(Step("card", self.program("print('{\"name\": \"copies.all\", \"failed\": 0}')"), 20, mark=""))
        self.assertEqual((card.outcome, card.results), (OK, [{"name": "copies.all", "failed": 0}]))

    def test_a_budget_that_is_used_up_ends_what_runs_and_names_what_is_not_begun(self):
        kit = self.kit(2)
        late = kit.run(Step("late", self.program("import time; time.sleep(60)"), 50, need=1))
        self.assertEqual((late.outcome, late.why), (FAILED, "was under way when the time for all was over"))
        never = kit.run(Step("never", self.program(""), 50, need=1))
        self.assertEqual((never.outcome, never.why), (SKIPPED, "0 s are left, and it wants 1"))
        self.assertIn("`never` | `skipped` | `0 s are left", page.text(self.out))

    def test_the_time_in_which_a_step_waits_for_its_turn_does_not_count(self):
        turn = self.program("import sys; sys.path.insert(0, sys.argv[1]); import common, time; common.turn(); time.sleep(1.5)", HERE)
        kit = self.kit()
        kit.side_by_side(Step(name, turn, 2.5, need=1, turns=True) for name in ("one", "two"))
        self.assertEqual([ended.outcome for ended in kit.ended], [OK, OK])


    def test_where_a_check_takes_the_run_of_conformance_down_the_areas_behind_it_are_run(self):
        granule = self.out / "granule"
        granule.write_text(r"""#!/bin/bash
[ "$4" = --list ] && { printf '%s\n' "one.a rule" "two.a rule" "two.b rule" "three.a rule"; exit; }
for area in "$@"; do
  case $area in
    two) echo '{"name": "two.a", "outcome": "passed"}'; kill -SEGV $$ ;;
    one | three) echo "{\"area\": \"$area\", \"passed\": 1}" ;;
  esac
done
echo '{"backend": "cuda", "passed": 1}'
""")
        granule.chmod(0o755)
        kit = self.kit()
        with unittest.mock.patch.object(drive, "GRANULE", granule):
            drive.conformance(kit, 30)
        found = page.lines(self.out, "conformance.jsonl")
        self.assertEqual([line.get("area") or line.get("name") or "total" for line in found], ["one", "two.a", "three", "total"])
        self.assertEqual([(ended.step.name, ended.why) for ended in kit.ended],
                         [("conformance-list", ""), ("conformance", "ended by SIGSEGV"), ("conformance-1", "")])


class Driver(unittest.TestCase):
    """The whole program, on a machine that has nothing."""

    def setUp(self):
        self.out = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.begin = dict(env={"PATH": "/usr/bin:/bin", "OUT": str(self.out), "GRANULE_CUDA_LIBRARY": "/nowhere/libcuda.so.1"},
                          stdout=subprocess.PIPE, text=True)
        # Without the packages of this Python: torch may be among them.
        self.words = [sys.executable, "-S", HERE / "drive.py"]

    def test_without_driver_and_torch_each_step_says_so_and_the_page_is_there(self):
        ran = subprocess.run(self.words, timeout=100, check=False, **self.begin)
        self.assertEqual(ran.returncode, 1)
        steps = {step["step"]: step for step in page.lines(self.out, "steps.jsonl")}
        self.assertEqual(steps["driver-cost"]["why"], "lacks the driver (probe-driver)")
        self.assertIn("/nowhere/libcuda.so.1 cannot be loaded", steps["probe-driver"]["why"])
        self.assertNotIn("selftest-anyway", steps)
        self.assertIn("has no torch", steps["probe-torch"]["why"])
        self.assertNotIn("failed", {step["outcome"] for step in steps.values()})
        self.assertIn("/nowhere/libcuda.so.1", (self.out / "summary.md").read_text())
        self.assertRegex(ran.stdout, r"lack the driver \(probe-driver\) \| .*train-native")
        self.assertIn("lack what is optional", ran.stdout)
        self.assertIn("results: ", ran.stdout.splitlines()[-1])
        self.assertNotRegex((self.out / "summary.md").read_text(), "## (What Granule|Recorded|Training)")
        page_there = subprocess.run([sys.executable, HERE / "page.py", self.out, self.out], stderr=subprocess.PIPE, text=True, check=False)
        self.assertRegex(page_there.stderr, "no device was found: .*summary.md")
        self.assertEqual(list(self.out.glob("gpu-*")), [])

    def test_a_signal_leaves_the_page(self):
        driver = subprocess.Popen([*self.words, "--plan", "slice"], **self.begin)
        while not (self.out / "machine.jsonl").exists():
            time.sleep(0.02)
        driver.send_signal(signal.SIGTERM)
        driver.communicate(timeout=30)
        self.assertEqual(driver.returncode, 1)
        self.assertIn("SIGTERM", (self.out / "summary.md").read_text())


class Page(unittest.TestCase):
    def setUp(self):
        self.out = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def results(self, **files):
        for name, found in files.items():
            (self.out / f"{name}.jsonl").write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in found))

    def test_the_name_of_a_card_leads_nowhere_else(self):
        for card, name in {
            "NVIDIA H100 80GB HBM3": "gpu-nvidia-h100-80gb-hbm3.md", "../../../etc/passwd": "gpu-etc-passwd.md", "": "gpu-unknown.md",
            "..": "gpu-unknown.md", "a" * 300: f"gpu-{'a' * 60}.md", "x\0/y\n": "gpu-x-y.md",
        }.items():
            self.assertEqual(page.file_name(card), name)

    def test_texts_of_results_are_neither_html_nor_links_nor_cells(self):
        evil = "<script>alert(1)</script> [x](../../y.md) | ` |\n# z"
        self.results(machine=[{"step": "probe", "what": "torch", "device": evil}], steps=[{"step": evil, "outcome": evil, "why": evil}],
                     conformance=[{"name": evil, "outcome": evil, "why": [evil]}], driver=[{"step": "driver", "failed": evil}])
        text = page.text(self.out)
        plain = re.sub(r"(?<!\\)`[^`]*`", "", text)
        self.assertNotRegex(plain, r"(?<!\\)[<\[]|\n# z")
        self.assertTrue(all(line.count(" | ") == 3 for line in text.splitlines() if line.startswith("| `<script")), text)

    def test_results_of_another_form_cost_their_part_alone(self):
        odd = ["{", "[]", "7", {"step": "train", "phase": "gpt", "mode": "native", "series": 3, "figures": []}, {"step": "oom", "phase": "truth"}]
        self.results(steps=[{"step": "train-native", "outcome": "failed", "why": "x"}], torch=odd, results=odd, driver=[{"median_ns": "x"}],
                     machine=[{"step": "devices", "said": {"backends": []}}])
        text = page.text(self.out)
        self.assertIn("has another form than expected", text)
        self.assertIn("`train-native` | `failed`", text)

    def written(self):
        return subprocess.run([sys.executable, HERE / "page.py", self.out, self.out], capture_output=True, text=True, check=False)

    def test_hostile_results_are_written_as_far_as_they_can_be(self):
        probe = {"step": "probe", "what": "torch", "device": "H100 \ud800"}
        self.results(machine=[probe, "[" * 100_000, {"step": "devices", "said": {"backends": ["x"]}}], steps=[{"step": ["\ud800"], "outcome": "failed"}])
        self.assertEqual(self.written().stderr, "")
        self.assertIn("H100 ?", (self.out / "gpu-h100.md").read_text())
        self.results(machine=[{"step": "devices", "said": {"backends": ["x"]}}])
        self.assertIn("no device was found", self.written().stderr)

    def test_a_run_on_simulated_drivers_gets_no_page_of_a_card(self):
        self.results(machine=[{"step": "kit", "simulated": True}, {"step": "probe", "what": "torch", "device": "H100"}], steps=[{"step": "lag", "outcome": "ok"}])
        self.assertRegex(self.written().stderr, "simulated drivers: .*summary.md")
        self.assertEqual(list(self.out.glob("gpu-*")), [])

    def test_of_two_runs_into_one_folder_the_last_word_on_each_step_counts(self):
        self.results(machine=[{"step": "kit", "date": "2026-11-28", "plan": plan} for plan in ("main", "more")],
                     steps=[{"step": "lag", "outcome": "failed", "why": "x"}, {"step": "lag", "outcome": "ok"}])
        text = page.text(self.out)
        self.assertRegex(text, "2026-11-28`: plan `main`[^`]*(?s:.*)plan `more`")
        self.assertIn("1 of 1 ended well", text)

    def test_each_row_of_what_the_book_assumes_has_the_cards_answer(self):
        book = HERE.parents[1] / "docs/devices.md"
        rows = book.read_text().partition("### What only hardware decides")[2].partition("\n## ")[0].splitlines()
        plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", row.split("|")[1]).strip() for row in rows if row.endswith("| assumed |")]
        self.assertEqual([row for row in plain if not any(row.startswith(known) for known in page.ASSUMED)], [])
        self.assertEqual(len(plain), len(page.ASSUMED))
        self.results(conformance=[{"name": "memory.aligned", "outcome": "passed"}])
        self.assertIn("memory.aligned: passed`", page.text(self.out))
        self.assertEqual(page.text(self.out).count("| not asked |"), 10)


if __name__ == "__main__":
    unittest.main()

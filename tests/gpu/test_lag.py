"""The arithmetic of lag.py, on times that are made up: python3 -m unittest tests/gpu/test_lag.py"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lag import lags, summary  # noqa: E402


def asked(*entries):
    """Entries of a history: (µs, "alloc" or "free", address, stream)."""
    return [(us, {"free": "free_requested"}.get(action, action), address, stream) for us, action, address, stream in entries]


class Lags(unittest.TestCase):
    def test_a_free_ends_between_the_events_around_it(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (30, "alloc", 1, 0), (40, "free", 1, 0), (50, "alloc", 1, 0), (90, "alloc", 2, 0))
        # The device is 30 µs behind: what was queued at 15 is done at 45, and so on.
        marks = {0: [(15, 45), (25, 55), (45, 75)]}
        found, cut = lags(trace, marks)
        # Freed at 20: done between 45 and 55, about at 50, after which 2 or 3 more were asked. Freed at 40: between 55 and 75.
        self.assertEqual((found, cut), ([((2, 2, 3), (25, 30, 35)), ((1, 1, 1), (15, 30, 35))], 0))

    def test_a_lag_that_grows_is_taken_between_its_events(self):
        trace = asked((5, "alloc", 1, 0), (35, "free", 1, 0), (60, "alloc", 1, 0), (70, "alloc", 2, 0), (999, "alloc", 3, 0))
        # 10 µs late at 20, 50 late at 40: 40 late at 35.
        self.assertEqual(lags(trace, {0: [(20, 30), (40, 90)]})[0], [((0, 2, 2), (0, 40, 55))])

    def test_nothing_is_late_where_all_is_done_at_once(self):
        # Two more requests of the same µs, and a module that ends long after the free.
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (20, "alloc", 1, 0), (20, "alloc", 2, 0), (30, "alloc", 3, 0), (99, "alloc", 4, 0))
        self.assertEqual(lags(trace, {0: [(15, 15), (50, 50)]})[0], [((0, 0, 3), (0, 0, 30))])
        # A clock that says that work was done before it was queued.
        self.assertEqual(lags(trace, {0: [(15, 3), (21, 4)]})[0], [((0, 0, 2), (0, 0, 1))])

    def test_a_block_waits_for_each_stream_that_was_given_it(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (30, "alloc", 2, 0), (40, "free", 2, 0), (50, "alloc", 1, 0), (60, "free", 1, 0), (200, "alloc", 9, 0))
        marks = {0: [(5, 5), (21, 22), (41, 42), (61, 62)], 7: [(12, 90), (25, 100), (70, 110)]}
        # Block 1 was given to stream 7; block 2 was not; and the block that later lies where 1 lay was not.
        found, _ = lags(trace, marks, [(11, 1, 7)])
        self.assertEqual([us[2] for _, us in found], [80, 2, 2])
        self.assertEqual((found[0][0], found[0][1][0]), ((4, 4, 4), 70))

    def test_a_use_counts_from_when_it_was_made(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (30, "alloc", 1, 0), (40, "free", 1, 0), (99, "alloc", 1, 0))
        found, _ = lags(trace, {0: [(21, 21), (41, 41)], 7: [(42, 80)]}, [(35, 1, 7)])
        self.assertEqual([us[2] for _, us in found], [1, 40])

    def test_an_event_of_the_same_microsecond_is_no_bound(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (100, "alloc", 1, 0))
        self.assertEqual(lags(trace, {0: [(20.4, 30), (26.1, 50)]})[0][0][1][2], 30)

    def test_what_ends_after_the_last_request_is_cut_and_counted(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (30, "alloc", 1, 0), (40, "free", 1, 5))
        self.assertEqual(lags(trace, {0: [(25, 1000)]}), ([], 2), "one too late to be counted, one of a stream without events")

    def test_what_is_queued_later_is_done_later(self):
        trace = asked((10, "alloc", 1, 0), (20, "free", 1, 0), (100, "alloc", 1, 0))
        self.assertEqual(lags(trace, {0: [(15, 50), (25, 40)]})[0], [((0, 0, 0), (30, 30, 30))])

    def test_the_summary_has_quantiles_parts_and_a_lag_to_replay_with(self):
        # 98 frees 10 events late, one 150, one 5 000.
        found = [((5, 10, 20), (1.0, 2.0, 3.0))] * 98 + [((100, 150, 160), (30.0, 40.0, 50.0)), ((2000, 5000, 6000), (900.0, 950.0, 990.0))]
        said = summary(found, 7)
        self.assertEqual((said["frees"], said["cut"]), (100, 7))
        self.assertEqual([said[f"events_{q}"] for q in ("p50", "p90", "p99", "max")], [10, 10, 150, 5000])
        self.assertEqual((said["least_events_p50"], said["most_events_max"], said["us_p50"], said["least_us_max"]), (5, 6000, 2, 900))
        self.assertEqual((said["over"], said["least_over"]), ({0: 1.0, 100: 0.02, 1000: 0.01}, {0: 1.0, 100: 0.01, 1000: 0.01}))
        # 10 takes 4 bits, 150 takes 8, 5 000 takes 13.
        self.assertEqual([(bits, count) for bits, count in enumerate(said["log2"]) if count], [(4, 98), (8, 1), (13, 1)])
        self.assertEqual(said["lag"], "--lag 10,150")
        self.assertEqual(summary([], 3), {"frees": 0, "cut": 3})
        three = summary([((late,) * 3, (0.0,) * 3) for late in (3, 1, 2)], 0)
        self.assertEqual([three[f"events_{q}"] for q in ("p50", "p90", "max")], [2, 3, 3], "the middle one is the median")


if __name__ == "__main__":
    unittest.main()

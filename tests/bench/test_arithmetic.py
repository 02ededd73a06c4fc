# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark's own arithmetic: medians, ratios, verdicts, the table, the plots, what it reads of others'
output. Nothing is measured."""
import io
import math
import pathlib
import sys
import types
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "lib")]

import base  # noqa: E402
import figures  # noqa: E402
import groups  # noqa: E402
import hosts  # noqa: E402
import measure  # noqa: E402
import noise  # noqa: E402
import peers  # noqa: E402
import perftest  # noqa: E402
import plot  # noqa: E402
import stand  # noqa: E402
import table  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def judge(row, values, reasons=()):
    return figures.judge(row, values, dict(reasons))


class Judging(unittest.TestCase):
    def test_ratio_of_medians_not_median_of_ratios(self):
        # ratios of the rounds: 1, 10, 2; medians: 20 and 10
        outcome = judge(figures.Row("x", "a", "b", at_least=2.0), {"a": [10, 100, 20], "b": [10, 10, 10]})
        self.assertEqual((outcome.value, outcome.reference, outcome.result), (20, 10, 2))
        self.assertEqual(outcome.verdict, "met")

    def test_at_most(self):
        values = {"a": [3.0] * 5, "b": [2.0] * 5}
        self.assertEqual(judge(figures.Row("x", "a", "b", at_most=1.5), values).verdict, "met")
        self.assertEqual(judge(figures.Row("x", "a", "b", at_most=1.4), values).verdict, "missed")

    def test_difference_and_value(self):
        values = {"a": [1.25, 1.0, 1.5], "b": [1.0, 1.0, 1.0]}
        self.assertEqual(judge(figures.Row("x", "a", "b", at_most=0.5, by="difference"), values).result, 0.25)
        outcome = judge(figures.Row("x", "a", at_most=1, by="value"), values)
        self.assertEqual((outcome.result, outcome.verdict), (1.25, "missed"))

    def test_middle_half_of_five_leaves_out_the_ends(self):
        self.assertEqual(figures.middle_half([5, 1, 4, 2, 3]), (2, 4))
        self.assertEqual(figures.middle_half([7]), (7, 7))
        self.assertEqual(figures.middle_half([2, 1]), (1, 2))

    def test_doubtful_when_the_target_lies_within(self):
        row = figures.Row("x", "a", "b", at_least=1.0)
        shaky = judge(row, {"a": [8, 9, 11, 12, 13], "b": [10] * 5})
        self.assertEqual((shaky.verdict, shaky.doubtful), ("met", True))
        one_bad_round = judge(row, {"a": [1, 11, 11, 12, 13], "b": [10] * 5})
        self.assertFalse(one_bad_round.doubtful)

    def test_without_figures_it_says_why(self):
        row = figures.Row("x", "a", "b", at_least=1.0)
        self.assertEqual(judge(row, {"b": [1]}, {"a": "not built"}).verdict, "not built")
        self.assertEqual(judge(row, {"a": [1]}, {"b": "failed"}).verdict, "failed")

    def test_no_target_no_verdict(self):
        outcome = judge(figures.Row("x", "a", "b"), {"a": [1], "b": [4]})
        self.assertEqual((outcome.result, outcome.verdict), (0.25, ""))

    def test_sizes(self):
        self.assertEqual([figures.size_text(n) for n in (8, 1000, 1024, 65536, 1 << 20)],
                         ["8 B", "1000 B", "1 KiB", "64 KiB", "1 MiB"])


class Noise(unittest.TestCase):
    def outcomes(self, *spreads):
        row = figures.Row("x", "a", "b")
        return [figures.Outcome(row, 1, 1, 1.0, 1.0 - spread / 2, 1.0 + spread / 2) for spread in spreads]

    def test_quiet(self):
        self.assertEqual(noise.complaints(0.02, 0.0, self.outcomes(0.05, 0.1, 0.9, 0.1, 0.1)), [])

    def test_others_steal_and_rounds_that_differ(self):
        self.assertEqual(len(noise.complaints(0.5, 0.0, [])), 1)
        self.assertEqual(len(noise.complaints(0.0, 0.1, [])), 1)
        self.assertEqual(len(noise.complaints(0.0, 0.0, self.outcomes(0.5, 0.5, 0.1))), 1)


class Text(unittest.TestCase):
    def test_table(self):
        good = judge(figures.Row("fast", "a", "b", at_least=2.0), {"a": [30.0], "b": [10.0]})
        bad = judge(figures.Row("later", "c", "b", at_most=1.0), {"b": [10.0]}, {"c": "not built"})
        lines = table.table([("group", [good, bad])], {"a": "GB/s", "b": "us"}).splitlines()
        self.assertEqual(lines[1], "group")
        self.assertEqual(lines[2].split(),
                         ["fast", "30.00", "GB/s", "b", "10.00", "us", "3.00", "0%", ">=", "2", "met"])
        self.assertTrue(lines[3].endswith("<= 1    not built"), lines[3])
        self.assertEqual(table.summary([good, bad], 5, []), ["1 of 1 targets met.", "1 targets have no figure."])

    def test_few_rounds_and_noise_are_said(self):
        said = "\n".join(table.summary([], 2, ["a neighbour"]))
        self.assertIn("Fewer than 5 rounds", said)
        self.assertIn("a neighbour", said)

    def test_time_left(self):
        progress = measure.Progress(["a", "b", "a", "b"], io.StringIO())
        progress.end("a", 3.0)
        self.assertEqual(progress.seconds_left(), 9.0)  # b is guessed like a
        progress.end("b", 1.0)
        self.assertEqual(progress.seconds_left(), 4.0)


class Plots(unittest.TestCase):
    def draw(self, values, flat=None):
        curves = {"Verbena ib_send_bw": {8: "a", 1024: "b"}, "a < b & c": {8: "c", 1024: "d"}}
        return plot.draw(groups.Plot("name", "Title & more", "GB/s", curves, flat or {}), values, "note")

    def test_well_formed(self):
        svg = ElementTree.fromstring(self.draw(
            {"a": [1, 2, 3], "b": [20], "c": [0.001], "d": [5], "e": [4.0]}, {"flat": "e"}))
        self.assertEqual(len(svg.findall(f"{SVG}polyline")), 3)
        words = [element.text for element in svg.findall(f"{SVG}text")]
        for word in ("Title & more", "a < b & c", "Verbena ib_send_bw", "flat", "8 B", "1 KiB", "size of a message",
                     "GB/s (more is better)"):
            self.assertIn(word, words)

    def test_everything_lies_within(self):
        svg = ElementTree.fromstring(self.draw({"a": [1e-6], "b": [90000], "c": [1], "d": [1]}))
        for circle in svg.findall(f"{SVG}circle"):
            self.assertTrue(plot.LEFT <= float(circle.get("cx")) <= plot.WIDTH - plot.RIGHT)
            self.assertTrue(plot.TOP <= float(circle.get("cy")) <= plot.HEIGHT - plot.BOTTOM)

    def test_a_median_is_drawn(self):
        svg = ElementTree.fromstring(self.draw({"a": [1, 2, 100], "b": [2]}))  # one mark: the same height
        places = svg.find(f"{SVG}polyline").get("points").split()
        self.assertEqual(*(place.split(",")[1] for place in places))

    def test_nothing_measured_nothing_drawn(self):
        self.assertIsNone(self.draw({}))

    def test_a_factor_is_a_distance(self):
        scale = plot.Scale(1, 100, 0, 200)
        self.assertTrue(math.isclose(scale(10), 100))

    def test_marks(self):
        self.assertEqual(plot.ticks(0.3, 7), [0.2, 0.5, 1, 2, 5, 10])
        self.assertEqual(plot.ticks(0.002, 900), [0.001, 0.01, 0.1, 1, 10, 100, 1000])

    def test_labels_keep_their_distance(self):
        placed = plot.spread_labels([100, 101, 102, 460, 461])
        self.assertTrue(all(b - a >= plot.LABEL_DISTANCE for a, b in zip(placed, placed[1:])), placed)
        self.assertLessEqual(placed[-1], plot.HEIGHT - plot.BOTTOM)


class Reading(unittest.TestCase):
    def test_perftest(self):
        bandwidth = " #bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n 65536 5000 9095.35 1000.00 0.016\n"
        self.assertEqual(perftest.figures("ib_write_bw", bandwidth, 65536, "k"),
                         {"k": 1.048576, "k, messages": 0.016})
        latency = " #bytes #iterations t_min t_max t_typical t_avg\n 8 5000 1.06 16498.43 2.14 161.27 462.40\n"
        self.assertEqual(perftest.figures("ib_send_lat", latency, 8, "k"), {"k": 2.14})

    def test_perftest_that_measured_nothing(self):
        nothing = " #bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n 65536 5000 0.00 0.00 0.0\n"
        self.assertRaises(ValueError, perftest.figures, "ib_write_bw", nothing, 65536, "k")

    def test_ucx(self):
        output = ("# a comment\ntag_lat_8,1000,0.601,105.209,2155.137,0.07,0.00,9505,464\n"
                  "tag_bw_1048576,Final: 200,0.211,1407.8,1407.8,710.28,1000.00,710,2000000\n")
        self.assertEqual(peers.ucx_figures(output), {
            "UCX tag_lat 8 B": 0.601, "UCX tag_bw 1 MiB": 1.048576, "UCX tag_bw 1 MiB, messages": 2.0})

    def test_fi_pingpong(self):
        output = ("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
                  "64k     1k      =1k      125m        0.63s    207.65     6.5536       0.00\n")
        self.assertEqual(peers.fi_figures(output), {
            "fi_pingpong latency 64 KiB": 6.5536, "fi_pingpong bandwidth 64 KiB": 10.0})


class Groups(unittest.TestCase):
    """What each group promises without being run."""

    stand = types.SimpleNamespace(local=hosts.Host("127.64.9.2"), second=hosts.Host("127.64.9.3"), build=ROOT,
                                  knows=lambda setting: False, wire=None)

    def test_every_row_and_curve_is_measured_by_a_job_of_its_group(self):
        for group in groups.GROUPS:
            for curves in (False, True):
                jobs, rows, plots = group.make(self.stand, curves)
                measured = {key for job in jobs for key in job.units}
                wanted = {row.key for row in rows} | {row.reference for row in rows if row.reference}
                for drawing in plots:
                    wanted |= {key for keys in drawing.curves.values() for key in keys.values()}
                    wanted |= set(drawing.flat.values())
                self.assertLessEqual(wanted, measured, group.name)

    def test_no_figure_is_measured_twice_in_a_round(self):
        for group in groups.GROUPS:
            jobs, _, _ = group.make(self.stand, True)
            every = [key for job in jobs for key in job.units]
            self.assertEqual(len(every), len(set(every)), group.name)

    def test_a_setting_that_the_build_does_not_know(self):
        jobs, _, _ = groups.share(self.stand, False)
        self.assertEqual({job.missing for job in jobs if job.stand}, {stand.NOT_BUILT})
        results = measure.run([("share", [job for job in jobs if job.stand], 1)], 1,
                              types.SimpleNamespace(probe=lambda: None), io.StringIO())
        self.assertEqual(set(results.reasons.values()), {stand.NOT_BUILT})
        self.assertEqual(results.failures, [])

    def test_a_job_that_fails_is_named_and_not_run_again(self):
        runs = []

        def fail():
            runs.append(1)
            raise hosts.Failed("it broke")

        results = measure.run([("g", [stand.Job("job", {"k": "us"}, fail)], 0)], 3,
                              types.SimpleNamespace(probe=lambda: None), io.StringIO())
        self.assertEqual((len(runs), results.failures, results.values), (measure.TRIES, ["job: it broke"], {}))

    def test_a_job_that_fails_once_is_repeated(self):
        answers = iter([hosts.Failed("once"), {"k": 1.0}, {"k": 2.0}])

        def run():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        results = measure.run([("g", [stand.Job("job", {"k": "us"}, run)], 0)], 2,
                              types.SimpleNamespace(probe=lambda: None), io.StringIO())
        self.assertEqual((results.values, results.failures, results.repeated), ({"k": [1.0, 2.0]}, [], ["job: once"]))

    def test_two_builds_take_turns(self):
        ours, theirs = (groups.events(self.stand, False)[0] for _ in range(2))
        jobs = base.jobs_in_turns(ours, theirs)
        self.assertEqual([job.name for job in jobs], [
            "local: ib_send_lat -e 8 B (base)", "local: ib_send_lat -e 8 B",
            "veth 9000: ib_send_lat -e 8 B (base)", "veth 9000: ib_send_lat -e 8 B"])
        self.assertEqual([(row.key, row.reference) for row in base.rows(jobs)][0],
                         ("local: ib_send_lat -e 8 B", "local: ib_send_lat -e 8 B (base)"))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()

"""Tests of python/ledger.py, bench_fla.py and bench_parts.py; no GPU, no torch."""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..",
                                "python"))
import bench_fla  # noqa: E402
import bench_parts  # noqa: E402
import ledger  # noqa: E402


def line(variant="kda.a.sm_90a", digest="d1", seed=1, us=10.0, inputs="random",
         **case):
    sizes = {"recurrence": "kda", "form": "chunk", "B": 1, "T": 64, "N": 1,
             "lengths": None, "H": 2, "HV": 2, "K": 128, "V": 128,
             "gate": "bounded", "dtype": "bf16", "state_dtype": "f32",
             "precision": "default", "schedule": "s",
             "inputs": f"{inputs} seed={seed} warm"}
    sizes.update(case)
    return {"variant": variant, "case": sizes, "gpu": "NVIDIA H200",
            "driver": "580", "llvm": "22", "ptxas": "13.0",
            "ptx_sha256": digest, "commit": "c", "date": "2026",
            "err": {"out": 1e-3, "state": None}, "us": us, "floor_us": 5.0}


class LedgerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = self.path("ledger.jsonl")

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, lines):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(x) + "\n" for x in lines)
        return self.path(name)

    def run_tool(self, *arguments):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), \
                contextlib.redirect_stderr(text):
            code = ledger.main(["--ledger", self.ledger, *arguments])
        return code, text.getvalue()

    def entries(self):
        return ledger.read_lines(self.ledger)

    def pack(self, variants):
        manifest = json.dumps({"images": [], "variants": [
            {"name": name, "variant": {"target": name.rsplit(".", 1)[1]},
             "launches": [{"ptx_sha256": digest}]}
            for name, digest in variants]}).encode()
        header = ledger.PACK_MAGIC + struct.pack("<IIQ", 1, 128, len(manifest))
        with open(self.path("a.kdac"), "wb") as file:
            file.write(header.ljust(128, b"\0") + manifest)
        return self.path("a.kdac")

    def test_merge_replaces_the_same_case_whatever_the_seed(self):
        self.run_tool("merge", self.write("a", [line(seed=1, us=10)]))
        code, _ = self.run_tool("merge", self.write("b", [line(seed=2, us=9)]))
        self.assertEqual(code, 0)
        self.assertEqual([x["us"] for x in self.entries()], [9])

    def test_merge_keeps_what_differs(self):
        lines = [line(), line(digest="d2"), line(T=65), line(variant="z.sm_80"),
                 line(inputs="correlated"), dict(line(), driver="581"),
                 dict(line(), ptxas="12.8"), dict(line(), gpu="NVIDIA H100")]
        self.run_tool("merge", self.write("a", lines))
        self.assertEqual(len(self.entries()), len(lines))

    def test_merge_does_not_depend_on_order(self):
        lines = [line(T=t) for t in (3, 1, 2)]
        self.run_tool("merge", self.write("a", lines))
        with open(self.ledger, encoding="utf-8") as file:
            first = file.read()
        os.remove(self.ledger)
        self.run_tool("merge", self.write("a", lines[::-1]))
        with open(self.ledger, encoding="utf-8") as file:
            self.assertEqual(file.read(), first)

    def test_peers_join_timed_lines_of_the_same_work(self):
        case = bench_fla.make_case(bench_fla.parse_shape("chunk:1:8192:96"),
                                   "bounded", 128)
        timed = line(inputs="random periodic", T=8192, H=96, HV=96)
        other = line(inputs="random periodic", T=8192, H=96, HV=96,
                     gate="softplus")
        untimed = line(T=8192, H=96, HV=96)
        peer = {"case": case, "gpu": "NVIDIA H200",
                "peer": {"name": "fla", "us": 2600}}
        code, _ = self.run_tool(
            "merge", self.write("a", [timed, other, untimed]), "--peers",
            self.write("p", [peer, dict(peer, gpu="NVIDIA H100")]))
        self.assertEqual(code, 0)
        with_peer = [x for x in self.entries() if "peer" in x]
        self.assertEqual(len(with_peer), 1)
        self.assertEqual(with_peer[0]["case"], timed["case"])
        self.assertEqual(with_peer[0]["peer"], {"name": "fla", "us": 2600})

    def test_missing_names_what_was_not_run_as_it_is(self):
        self.run_tool("merge", self.write("a", [line("kda.a.sm_90a", "d1"),
                                                line("kda.b.sm_90a", "old")]))
        pack = self.pack([("kda.a.sm_90a", "d1"), ("kda.b.sm_90a", "d2"),
                          ("kda.c.sm_90a", "d3"), ("kda.a.host", "x")])
        code, text = self.run_tool("missing", pack)
        self.assertEqual(code, 1)
        self.assertEqual(text.splitlines(),
                         ["kda.b.sm_90a: other PTX was run",
                          "kda.c.sm_90a: never run",
                          "1 of 3 variants have been run"])
        self.assertEqual(self.run_tool("missing", self.pack(
            [("kda.a.sm_90a", "d1")]))[0], 0)
        self.assertEqual(self.run_tool("missing", "--gpu", "H100", self.pack(
            [("kda.a.sm_90a", "d1")]))[0], 1)

    def test_missing_may_be_expected_exactly(self):
        self.run_tool("merge", self.write("a", [line("kda.a.sm_90a", "d1")]))
        pack = self.pack([("kda.a.sm_90a", "d1"), ("kda.b.sm_90a", "d2")])
        names = self.path("unverified.txt")
        self.assertEqual(self.run_tool("missing", pack, "--write", names)[0], 0)
        self.assertEqual(self.run_tool("missing", pack, "--expect", names)[0],
                         0)
        changed = self.pack([("kda.a.sm_90a", "d9"), ("kda.b.sm_90a", "d2")])
        code, text = self.run_tool("missing", changed, "--expect", names)
        self.assertEqual(code, 1)
        self.assertIn("kda.a.sm_90a: its code changed", text)
        code, text = self.run_tool("missing", self.pack(
            [("kda.a.sm_90a", "d1")]), "--expect", names)
        self.assertEqual(code, 1)
        self.assertIn("kda.b.sm_90a: has been run", text)

    def test_prune_drops_older_code_of_variants_that_are_there(self):
        peer = dict(line("kda.a.sm_90a", "older"),
                    peer={"name": "fla", "us": 2600})
        self.run_tool("merge", self.write("a", [
            line("kda.a.sm_90a", "now"), line("kda.a.sm_90a", "old"), peer,
            line("kda.b.sm_90a", "other")]))
        code, _ = self.run_tool("prune", self.pack([("kda.a.sm_90a", "now"),
                                                    ("kda.c.sm_90a", "x")]))
        self.assertEqual(code, 0)
        self.assertEqual(sorted(x["ptx_sha256"] for x in self.entries()),
                         ["now", "older", "other"])

    def test_bad_files_are_refused_with_their_place(self):
        bad = line()
        del bad["us"]
        for name, lines, sentence in (
                ("a", [line(), bad], "a:2: a ledger line has no field 'us'"),
                ("b", [dict(line(), case=3)], "b:1: expected its case"),
                ("c", [3], "c:1: expected an object")):
            code, text = self.run_tool("merge", self.write(name, lines))
            self.assertEqual(code, 2)
            self.assertIn(sentence, text)
        self.assertFalse(os.path.exists(self.ledger))
        with open(self.path("x.kdac"), "wb") as file:
            file.write(b"ELF" * 100)
        self.run_tool("merge", self.write("a", [line()]))
        code, text = self.run_tool("missing", self.path("x.kdac"))
        self.assertEqual((code, "is not a kdac pack" in text), (2, True))

    def test_show_is_a_table(self):
        self.run_tool("merge", self.write("a", [line(lengths=[3, 0, 4])]))
        code, text = self.run_tool("show")
        self.assertEqual(code, 0)
        self.assertIn("chunk:1:3+0+4:2", text.splitlines()[1])
        self.assertIn("50", text.splitlines()[1])


    def tabled(self, date, us, **more):
        entry = line(**more)
        entry.update(variant="kda.chunk.k128v128.bf16.f32vk.bounded.sm_90a",
                     us=us, floor_us=100.0, ptx_sha256=date, date=date)
        entry["case"].update(N=1, T=512, H=64, HV=64, lengths=None,
                             inputs="random periodic seed=1")
        return entry

    def test_table_has_the_newest_time_and_the_newest_peer(self):
        old = self.tabled("2026-01-01", 400.0)
        old["peer"] = {"name": "fla", "us": 600.0}
        new = self.tabled("2026-02-01", 200.0)
        self.run_tool("merge", self.write("a", [new, old]))
        code, text = self.run_tool("table")
        self.assertEqual(code, 0)
        self.assertEqual(text.splitlines()[2:], [
            "| KDA bounded | `chunk:1:512:64` | 100 \u00b5s | **200** | 50 % | "
            "600 (fla) | 3.0 |"])

    def test_table_has_no_time_of_older_code(self):
        old = self.tabled("2026-01-01", 400.0)
        old["case"].update(T=8192)
        self.run_tool("merge", self.write("a", [self.tabled("2026-02-01", 200.0),
                                                old]))
        self.assertNotIn("8192", self.run_tool("table")[1])

    def test_table_is_written_and_compared_in_a_document(self):
        self.run_tool("merge", self.write("a", [self.tabled("2026-01-01", 200.0)]))
        doc = self.path("doc.md")
        with open(doc, "w", encoding="utf-8") as file:
            file.write("before\n<!-- ledger.py table -->\nstale\n"
                       "<!-- end of table -->\nafter\n")
        self.assertEqual(self.run_tool("table", "--check", doc)[0], 1)
        self.assertEqual(self.run_tool("table", "--write", doc)[0], 0)
        self.assertEqual(self.run_tool("table", "--check", doc)[0], 0)
        with open(doc, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("stale", text)

    def test_table_needs_its_place(self):
        self.run_tool("merge", self.write("a", [self.tabled("2026-01-01", 200.0)]))
        doc = self.write("doc.md", [])
        code, text = self.run_tool("table", "--write", doc)
        self.assertEqual(code, 2)
        self.assertIn("has no '<!-- ledger.py table -->'", text)


class BenchFlaTest(unittest.TestCase):
    def test_shapes(self):
        packed = bench_fla.parse_shape("chunk:1:5+0+7:4:8")
        self.assertEqual(packed, {"form": "chunk", "B": 1, "T": 12, "N": 3,
                                  "lengths": [5, 0, 7], "H": 4, "HV": 8})
        self.assertEqual(bench_fla.parse_shape("step:64:1:96")["B"], 64)
        for text in ("chunk:1:2", "scan:1:2:3", "chunk:0:2:3", "chunk:1:a:3"):
            with self.assertRaises(SystemExit):
                bench_fla.parse_shape(text)

    def test_flash_kda_runs_what_it_has(self):
        def has(shape, gate="bounded", dim=128):
            return bench_fla.flash_kda_has(bench_fla.make_case(
                bench_fla.parse_shape(shape), gate, dim))
        self.assertTrue(has("chunk:1:8192:96"))
        self.assertFalse(has("step:64:1:96"))
        self.assertFalse(has("chunk:1:8192:4:8"))
        self.assertFalse(has("chunk:1:8192:96", "softplus"))
        self.assertFalse(has("chunk:1:8192:96", dim=64))

    def test_dry_run_needs_no_torch(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            code = bench_fla.main(["--dry-run", "--gates", "bounded,softplus"])
        self.assertEqual(code, 0)
        self.assertEqual(len(text.getvalue().splitlines()), 4)

    def test_parts_are_of_one_token_and_as_many_heads(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            code = bench_parts.main(["--dry-run", "--shapes", "step:2:1:3"])
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(text.getvalue()),
                         {"N": 2, "H": 3, "parts": list(bench_parts.PARTS)})
        for shape in ("chunk:1:64:2", "step:1:2:2", "step:1:1:2:4"):
            with self.assertRaises(SystemExit):
                bench_parts.main(["--dry-run", "--shapes", shape])


if __name__ == "__main__":
    unittest.main()

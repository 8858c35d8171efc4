"""Runs the commands of the records about solvers, searches and schedules in a tiny form."""

import unittest

from smoke import Tiny, run_tiny_forms

from pages import commands_of


def medians(*names):
    return [rf"^BM_{name}/\S*_median +[\d.]+ [mun]s" for name in names]


FORMS = {
    "docs/measurements/planner.md": [
        Tiny({"'HeuAgainstOpt.*'": "'HeuAgainstOpt.ArbitraryProblems'", "heu_gap 3 130 5 mixed 2000": "heu_gap 2 4 2 mixed 2000",
              "heu_gap 8 100 4": "heu_gap 3 4 2", "heu_gap 3 560 2 offload": "heu_gap 2 4 1 offload"},
             ["PASSED", ("transformer stages", 3), (r"^not proven: at most [\d.]+% of HEU's exposed time", 3)]),
        Tiny({"BM_Opt/10/4/(50/10|200)": "BM_Opt/10/4/200/(10|60)", "--benchmark_repetitions=5": "--benchmark_repetitions=2", "'BM_Opt' ": "'BM_Opt/10/4/50/60' "},
             [r"^BM_Opt/10/4/200/10/\S*_median .*exposed_us=.*heu_us=", r"^BM_Opt/10/4/50/60/.*exposed_us=0 .* optimal$"]),
        Tiny({"--benchmark_repetitions=12 --benchmark_min_time=0.01": "--benchmark_repetitions=2 --benchmark_min_time=0.001"},
             medians("HeuStage", "HeuStageWithMasks", "HeuNextStage", "HeuMix", "HeuEstimate"), never=["ERROR"]),
        Tiny({"search_bench --benchmark_repetitions=3": "search_bench --benchmark_filter='Search.*/1/|Plan23b/8/|PlanGrows/16/4/' --benchmark_repetitions=2"},
             [*medians("SearchEngine", "SearchAny", "Plan23b", "PlanGrows"), r"candidates=.* simulated=.* step=[\d.]+ tp8 pp8 dp64 vp12 sp interleaved"], never=["ERROR"]),
        Tiny({"LYNX_REQUESTS=200": "LYNX_REQUESTS=1", "LYNX_REQUESTS=300": "LYNX_REQUESTS=1"},
             [r"^regret over 1 requests: [\d.]+% in the mean, [\d.]+% at most$", (r"^0 of 1 pairs are worse, by at most 0.00%$", 7)]),
        Tiny({"rankOrder=tp-pp-dp": "rankOrder=tp-dp-pp --set parallel.weave=off"}, [r" order-tp-dp-pp ", r"^predicted: step "]),
        Tiny({"mixtral-8x7b mixtral-8x22b qwen3-235b-a22b deepseek-v3": "olmoe-1b-7b", "32 256": "1", "--nodes $nodes": "--nodes $nodes --set parallel.weave=off"},
             [r"^tp\d.* ep\d.*\(8 ranks\)", r"^predicted: step ", r"^olmoe-1b-7b on 8: [\d.]+ s, of it in user mode [\d.]+ s$"]),
        Tiny({"none full": "full", "layers: 14": "layers: 8", "--nodes 8": "--nodes 8 --set parallel.weave=off"}, [r"^tp1 pp4 dp16 ep16 .*\(64 ranks\)", (r"^predicted: step ", 2), "^memory: at most "]),
        Tiny({"bench/peers.py": "bench/peers.py --pinned && bench/peers.py --only metis-gpt"},
             [(r"^\S+: [\d.]+ s by the peer, [\d.]+ s by Lynx$", 7), r"^\| metis-gpt \| dp8 mb4 none \|(.* [\d.]+ \|){3}$"])],
    "docs/measurements/studio.md": [
        Tiny({"bench/studio.py --moves 60": "bench/studio.py --moves 3 --models gpt-1.3b --nodes 1"},
             [r"^gpt-1.3b, tp\d.*: \d+ ms a move \(\d+ to \d+\), of them [\d.]+ ms of planning; whole search [\d.]+ s$"])],
    "docs/measurements/schedules.md": [
        Tiny({"--benchmark_min_time=0.1 --benchmark_repetitions=9": "--benchmark_min_time=0.001 --benchmark_repetitions=2"},
             medians("StepTime", "Timeline", "OrderSlots", "Generate"), never=["ERROR"])],
}


class PlannerTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.planner"), FORMS)


if __name__ == "__main__":
    unittest.main()

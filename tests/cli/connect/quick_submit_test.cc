#include "cli/connect/quick_submit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::cli {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

TEST(QuickSubmitTest, KnowsTheOptionsOfMostSubmissions) {
  const auto parsed = ParseQuickSubmit({"--server", "127.0.0.1:1", "submit", "-f", "job.yaml", "--set", "a=1", "--set=b=2",
                                        "--idempotency-key", "key", "--timeout=2.5", "-o", "table"});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->server, "127.0.0.1:1");
  EXPECT_EQ(parsed->file, "job.yaml");
  EXPECT_THAT(parsed->overrides, ElementsAre("a=1", "b=2"));
  EXPECT_EQ(parsed->idempotency_key, "key");
  EXPECT_EQ(parsed->timeout_seconds, 2.5);
}

TEST(QuickSubmitTest, OptionsOfAllVerbsMayComeAfterTheVerb) {
  const auto parsed = ParseQuickSubmit({"submit", "--file=job.yaml", "--server=[::1]:7470"});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->server, "[::1]:7470");
  EXPECT_EQ(parsed->idempotency_key, "");
  EXPECT_EQ(parsed->timeout_seconds, 10);
}

// The fast path leaves each of these command lines to the full program: it is another command, has a mistake, or has a special
// meaning.
TEST(QuickSubmitTest, LeavesEverythingElse) {
  for (const Words& words : std::vector<Words>{
           {},
           {"submit"},
           {"list"},
           {"submit", "-f"},
           {"submit", "-f", ""},
           {"submit", "-f", "a.yaml", "b.yaml"},
           {"submit", "-f", "a.yaml", "-f", "b.yaml"},
           {"submit", "-f", "[a,b]"},
           {"submit", "-fa.yaml"},
           {"submit", "-f=a.yaml"},
           {"submit", "--fil", "a.yaml"},
           {"submit", "-f", "a.yaml", "--wait"},
           {"submit", "-f", "a.yaml", "-w"},
           {"submit", "-f", "a.yaml", "--help"},
           {"submit", "-f", "a.yaml", "-o", "json"},
           {"submit", "-f", "a.yaml", "-o", "Table"},
           {"submit", "-f", "a.yaml", "--set", "-x"},
           {"submit", "-f", "a.yaml", "--set", "[a=1,b=2]"},
           {"submit", "-f", "a.yaml", "--set", "a=1", "b=2"},
           {"submit", "-f", "a.yaml", "--context", "c.json"},
           {"submit", "-f", "a.yaml", "--ca-file", "c.pem"},
           {"submit", "-f", "a.yaml", "--token-file=t"},
           {"submit", "-f", "a.yaml", "--timeout", "0"},
           {"submit", "-f", "a.yaml", "--timeout", "3601"},
           {"submit", "-f", "a.yaml", "--timeout", "nan"},
           {"submit", "-f", "a.yaml", "--timeout", "soon"},
           {"submit", "-f", "a.yaml", "--timeout", "1", "--timeout", "2"},
           {"submit", "-f", "a.yaml", "submit"},
           {"submit", "-f", "a.yaml", "--"},
           {"-f", "a.yaml", "submit"},
       }) {
    EXPECT_FALSE(ParseQuickSubmit(words).has_value()) << ::testing::PrintToString(words);
  }
}

}  // namespace
}  // namespace lynx::cli

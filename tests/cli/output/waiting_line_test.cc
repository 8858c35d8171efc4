#include "cli/output/waiting_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>

#include <string>

namespace lynx::cli {
namespace {

using ::testing::EndsWith;

// Reads from `from` until it has read `text`. Waits for the writer.
std::string ReadUntil(int from, const std::string& text) {
  std::string all;
  char byte = 0;
  while (all.find(text) == std::string::npos && read(from, &byte, 1) == 1) all.push_back(byte);
  return all;
}

TEST(WaitingLine, SaysOnATerminalWhatItIsAtAndWipesItself) {
  ASSERT_EQ(setenv("TERM", "xterm", 1), 0);
  int screen = -1, terminal = -1;
  winsize narrow{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(openpty(&screen, &terminal, nullptr, nullptr, &narrow), 0);
  std::string all;
  {
    WaitingLine line("planning", terminal, std::chrono::milliseconds(0));
    all = ReadUntil(screen, "planning (");
    line.At("layouts with tp 8");
    all += ReadUntil(screen, "planning: layouts with tp 8 (");
    // The line is cut, because a line that continues on the next line of the screen could not be erased.
    line.At(std::string(100, 'x'));
    all += ReadUntil(screen, std::string(29, 'x'));
  }
  close(terminal);
  all += ReadUntil(screen, "never written");
  EXPECT_THAT(all, EndsWith("\r\033[K"));
  EXPECT_EQ(all.find(std::string(30, 'x')), std::string::npos) << "39 columns";
  close(screen);
}

TEST(WaitingLine, WritesNothingBeforeItsTime) {
  ASSERT_EQ(setenv("TERM", "xterm", 1), 0);
  int screen = -1, terminal = -1;
  ASSERT_EQ(openpty(&screen, &terminal, nullptr, nullptr, nullptr), 0);
  { const WaitingLine line("planning", terminal, std::chrono::hours(1)); }
  close(terminal);
  EXPECT_EQ(ReadUntil(screen, "never written"), "");
  close(screen);
}

TEST(WaitingLine, WritesNothingWhereThereIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    WaitingLine line("planning", ends[1], std::chrono::milliseconds(0));
    line.At("layouts");
  }
  close(ends[1]);
  EXPECT_EQ(ReadUntil(ends[0], "never written"), "");
  close(ends[0]);
}

}  // namespace
}  // namespace lynx::cli

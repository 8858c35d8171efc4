#include "common/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace lynx {
namespace {

TEST(Utf8, TakesWholeCharacters) {
  for (const std::string text :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x88", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << text;
  }
}

TEST(Utf8, StopsAtWhatIsNotWellFormed) {
  // In order: a continuation byte alone, a character without its end, two overlong characters, a surrogate, a character beyond
  // the last code point, and a byte that never begins a character.
  for (const std::string bad : {"\x80", "\xe2\x82", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(ValidUtf8Prefix("ab" + bad), 2u) << bad;
    EXPECT_EQ(ValidUtf8Prefix("ab" + bad + "cd"), 2u) << bad;
  }
}

TEST(Utf8, WritesOutWhatATerminalWouldObey) {
  EXPECT_EQ(VisibleLine("a\x1b[2J\rb\nc\td\x7f"), "a\\x1b[2J\\rb\\nc d\\x7f");
  EXPECT_EQ(VisibleText("a\x1b[2J\rb\nc\td"), "a\\x1b[2J\\rb\nc d");
  EXPECT_EQ(VisibleLine(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(VisibleLine("\xc2\x9b"
                        "31m"),
            "\\u009b31m")
      << "C1 as a character";
  EXPECT_EQ(VisibleLine("\x9b"
                        "31m\xe2\x82"),
            "\\x9b31m\\xe2\\x82")
      << "as a byte, which terminals without UTF-8 obey";
  EXPECT_EQ(VisibleLine("\xc3\xa9\xc2\xa0\xe2\x82\xac\xf0\x9f\x90\x88"), "\xc3\xa9\xc2\xa0\xe2\x82\xac\xf0\x9f\x90\x88")
      << "all else is as it was";
}

TEST(Utf8, ControlsAreFound) {
  for (const std::string text : {"", "plain", "\xc3\xa9 \xc2\xa0", "\xf0\x9f\x90\x88"}) EXPECT_FALSE(HasControls(text)) << text;
  for (const std::string text : {"\x1b", "a\n", "a\tb", "\x7f", "\xc2\x85", "ab\xff"})
    EXPECT_TRUE(HasControls(text)) << VisibleLine(text);
}

}  // namespace
}  // namespace lynx

#include "common/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace lynx {
namespace {

TEST(Utf8, TakesWholeCharacters) {
  for (const std::string text : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x88", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << text;
  }
}

TEST(Utf8, StopsAtWhatIsNotWellFormed) {
  // A lone byte, a character cut off, an overlong one, a surrogate, beyond the last character, a byte that never leads.
  for (const std::string bad : {"\x80", "\xe2\x82", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(ValidUtf8Prefix("ab" + bad), 2u) << bad;
    EXPECT_EQ(ValidUtf8Prefix("ab" + bad + "cd"), 2u) << bad;
  }
}

}  // namespace
}  // namespace lynx

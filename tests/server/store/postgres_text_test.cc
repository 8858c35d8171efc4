#include "server/store/postgres_text.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

// U+10FF00, the first of the characters that replace bytes which PostgreSQL cannot store.
constexpr char kForZero[] = "\xF4\x8F\xBC\x80";

TEST(PostgresText, OrdinaryTextStaysAsItIs) {
  for (const std::string text :
       {"", "gpt", "größer als 3 GiB", "模型", "\xF0\x9F\x98\x80", "50% \\ 'quoted' \"text\"\n\t\x7F"}) {
    EXPECT_EQ(ToPostgresText(text), text);
    EXPECT_EQ(FromPostgresText(text), text);
  }
}

TEST(PostgresText, EveryOtherByteIsReplacedAndComesBack) {
  for (const std::string& text : {std::string("a\0b", 3), std::string("\xFF"), std::string("cut \xE6\xA8"),
                                  std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xF5\x80\x80\x80"),
                                  std::string("\x80 first"), std::string(kForZero), std::string("\xF4\x8F\xBF\xBF")}) {
    const std::string stored = ToPostgresText(text);
    EXPECT_NE(stored, text);
    EXPECT_EQ(stored.find('\0'), std::string::npos);
    EXPECT_EQ(FromPostgresText(stored), text);
  }
  EXPECT_EQ(ToPostgresText(std::string("\0", 1)), kForZero);
}

TEST(PostgresText, RandomBytesComeBack) {
  std::mt19937 random(7);
  for (int n = 0; n < 5'000; ++n) {
    std::string text(random() % 12, '\0');
    // Many bytes are taken from the replacement characters, so that all their combinations occur.
    for (char& c : text) c = static_cast<char>(random() % 2 == 0 ? random() % 256 : "\xF4\x8F\xBC\xBF\x80\xC3"[random() % 6]);
    EXPECT_EQ(FromPostgresText(ToPostgresText(text)), text) << n;
  }
}

}  // namespace
}  // namespace lynx::server

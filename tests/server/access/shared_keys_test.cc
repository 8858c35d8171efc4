// Tests the keys and certificates that all servers of a store share, with the files of two data directories.
#include "server/access/shared_keys.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "security/authority.h"
#include "security/certificate.h"

namespace lynx::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr Nanos kDay{86'400LL * 1'000'000'000};
constexpr Nanos kLife{100 * kDay.value};

class SharedKeysTest : public ::testing::Test {
 protected:
  SharedKeysTest() {
    std::string pattern = ::testing::TempDir() + "lynx_shared_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~SharedKeysTest() override { std::filesystem::remove_all(directory_); }

  SharedPlaces PlacesOf(const std::string& server, bool tls = true) const {
    std::filesystem::create_directories(directory_ + "/" + server);
    return {.authority_directory = tls ? absl::StrCat(directory_, "/", server, "/tls") : "",
            .connection_key = absl::StrCat(directory_, "/", server, "/connections.key"),
            .checkpoint_root = absl::StrCat(directory_, "/", server, "/jobs"),
            .store = "the database"};
  }
  SharedValues Led(const std::string& server, const SharedValues& stored = {}) const {
    const absl::StatusOr<SharedValues> missing = MissingShared(stored, PlacesOf(server), /*used=*/false, now_, kLife);
    EXPECT_TRUE(missing.ok()) << missing.status();
    return missing.ok() ? *missing : SharedValues();
  }
  std::string Content(const std::string& file) const {
    std::stringstream text;
    text << std::ifstream(directory_ + "/" + file).rdbuf();
    return text.str();
  }

  std::string directory_;
  const Nanos now_ = RealClock().Wall();
};

TEST_F(SharedKeysTest, TheFirstLeaderMakesThemAndOthersTakeThem) {
  const SharedValues stored = Led("a");
  EXPECT_THAT(stored, UnorderedElementsAre(Key(kSharedAuthorityKey), Key(kSharedAuthority), Key(kSharedConnectionKey),
                                           Key(kSharedCheckpoints)));
  EXPECT_EQ(stored.at(kSharedCheckpoints), directory_ + "/a/jobs");
  const SharedPlaces b = PlacesOf("b");
  EXPECT_TRUE(IsComplete(stored, b));
  ASSERT_TRUE(TakeShared(stored, b).ok());
  for (const char* file : {"tls/ca.key", "tls/ca.pem"}) {
    EXPECT_EQ(Content(absl::StrCat("a/", file)), Content(absl::StrCat("b/", file)));
  }
  EXPECT_EQ(Content("b/connections.key"), stored.at(kSharedConnectionKey));
  for (const char* file : {"b/tls/ca.key", "b/connections.key"}) {
    struct stat found {};
    ASSERT_EQ(::stat((directory_ + "/" + file).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u) << file;
  }
  EXPECT_THAT(Led("b", stored), IsEmpty()) << "when it leads later, nothing is missing";
}

TEST_F(SharedKeysTest, WithoutTlsThereIsNoAuthority) {
  const SharedPlaces places = PlacesOf("a", /*tls=*/false);
  const SharedValues stored = MissingShared({}, places, /*used=*/false, now_, kLife).value();
  EXPECT_THAT(stored, UnorderedElementsAre(Key(kSharedConnectionKey), Key(kSharedCheckpoints)));
  EXPECT_TRUE(IsComplete(stored, places));
  EXPECT_FALSE(IsComplete(stored, PlacesOf("b")));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/a/tls"));
}

TEST_F(SharedKeysTest, AServerWithoutTlsIsNotOneOfThoseThatUseIt) {
  const absl::Status status = TakeShared(Led("a"), PlacesOf("b", /*tls=*/false));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the servers of the database use TLS, and this one would not"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/b/connections.key"));
}

// The store was moved here, or its server has not yet written its keys to the store.
TEST_F(SharedKeysTest, OnlyTheServerThatHasTheKeysOfAUsedStoreLeadsFirst) {
  Led("a");
  const SharedPlaces b = PlacesOf("b");
  const absl::Status refused = MissingShared({}, b, /*used=*/true, now_, kLife).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("first start the server with the --data-dir of that cluster"));
  EXPECT_FALSE(std::filesystem::exists(b.connection_key));
  EXPECT_THAT(MissingShared({}, PlacesOf("a"), /*used=*/true, now_, kLife).value(), Contains(Key(kSharedAuthorityKey)));
}

TEST_F(SharedKeysTest, AnotherKeyIsRefusedAndNothingIsChanged) {
  const SharedValues stored = Led("a");
  Led("b");
  const std::string key = Content("b/tls/ca.key");
  SharedValues only_authority = stored;
  only_authority.erase(kSharedConnectionKey);
  const absl::Status authority = TakeShared(only_authority, PlacesOf("b"));
  EXPECT_EQ(authority.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(authority.message()),
              HasSubstr(absl::StrCat(directory_,
                                     "/b/tls/ca.key is another key than the one that the database has for all its "
                                     "servers: to make this server one of them, move ",
                                     directory_, "/b/tls aside")));
  EXPECT_EQ(Content("b/tls/ca.key"), key);
  const absl::Status connections = TakeShared(stored, PlacesOf("b"));
  EXPECT_THAT(std::string(connections.message()), HasSubstr("/b/connections.key is another key"));
}

TEST_F(SharedKeysTest, ARenewedCertificateReachesTheOthersAndIsNotReplacedByAnOlderOne) {
  SharedValues stored = Led("a");
  const SharedPlaces a = PlacesOf("a"), b = PlacesOf("b");
  ASSERT_TRUE(TakeShared(stored, b).ok());
  const Nanos later = now_ + Nanos(70 * kDay.value);
  const Authority authority = Authority::Open(a.authority_directory, later, kLife).value();
  ASSERT_TRUE(authority.IsDue(later));
  const std::string renewed = authority.Renew(a.authority_directory, later, kLife)->chain();
  ASSERT_TRUE(TakeShared(stored, a).ok());
  EXPECT_EQ(Content("a/tls/ca.pem"), renewed) << "the store has the older one";
  const SharedValues missing = MissingShared(stored, a, /*used=*/true, later, kLife).value();
  EXPECT_THAT(missing, UnorderedElementsAre(Key(kSharedAuthority)));
  stored[kSharedAuthority] = missing.at(kSharedAuthority);
  ASSERT_TRUE(TakeShared(stored, b).ok());
  EXPECT_EQ(Content("b/tls/ca.pem"), renewed);
}

}  // namespace
}  // namespace lynx::server

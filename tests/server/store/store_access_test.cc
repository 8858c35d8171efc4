// Tests the store's tables of callers and of recorded calls.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/store/engines.h"

namespace lynx::server {
namespace {

class StoreAccessTest : public StoreOnEngine {};
INSTANTIATE_ON_ENGINES(StoreAccessTest);

const std::vector<AccessChange>& Changes() {
  static const auto* changes = new std::vector<AccessChange>{
      User{"alice", Role::kOperator, Nanos(1)},       User{"bob", Role::kViewer, Nanos(2)},
      UserToken{"id1", "digest1", "alice", Nanos(3)}, UserToken{"id2", "digest2", "bob", Nanos(3), Nanos(50)},
      JoinGrant{"grant", "n0", Nanos(4), Nanos(60)},  NodeCertificate{"serial", "n0", Nanos(5), Nanos(70)}};
  return *changes;
}

TEST_P(StoreAccessTest, ReadsBackWhatWasWritten) {
  { ASSERT_TRUE(Open()->CommitAccess(Changes(), {.who = "admin"}).ok()); }
  AccessBook book;
  book.Apply(Open()->LoadAccess().value());
  EXPECT_EQ(book.UserOfToken("digest1", Nanos(99))->name, "alice");
  EXPECT_EQ(book.UserOfToken("digest1", Nanos(99))->role, Role::kOperator);
  EXPECT_EQ(book.UserOfToken("digest2", Nanos(49))->name, "bob");
  EXPECT_FALSE(book.UserOfToken("digest2", Nanos(50)).has_value()) << "it has ended";
  EXPECT_EQ(book.FindToken("id2")->expires, Nanos(50));
  EXPECT_EQ(book.FindJoinGrant("grant", Nanos(59))->node, "n0");
  EXPECT_FALSE(book.FindJoinGrant("grant", Nanos(60)).has_value());
  EXPECT_EQ(book.FindCertificate("serial", Nanos(69))->node, "n0");
  EXPECT_FALSE(book.FindCertificate("serial", Nanos(70)).has_value());
  EXPECT_EQ(book.Expired(Nanos(65)).size(), 1u);
}

TEST_P(StoreAccessTest, ForgetsWhatIsDeleted) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->CommitAccess(Changes(), {}).ok());
  ASSERT_TRUE(
      store->CommitAccess({DeleteUser{"alice"}, DeleteToken{"id2"}, DeleteJoinGrant{"grant"}, DeleteCertificate{"serial"}}, {})
          .ok());
  AccessBook book;
  book.Apply(store->LoadAccess().value());
  EXPECT_FALSE(book.FindUser("alice").has_value());
  EXPECT_FALSE(book.FindToken("id1").has_value()) << "with the user go the tokens";
  EXPECT_FALSE(book.FindToken("id2").has_value());
  EXPECT_TRUE(book.FindUser("bob").has_value());
  EXPECT_TRUE(book.JoinGrants().empty());
  EXPECT_TRUE(book.CertificatesOf("n0", Nanos(6)).empty());
}

TEST_P(StoreAccessTest, AChangeAndItsRecordAreWrittenTogetherOrNotAtAll) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->CommitAccess(Changes(), {.who = "first"}).ok());
  const absl::Status twice = store->CommitAccess({User{"carol", Role::kViewer, Nanos(1)}, Changes()[2]}, {.who = "second"});
  EXPECT_FALSE(twice.ok()) << "the token's id is taken";
  AccessBook book;
  book.Apply(store->LoadAccess().value());
  EXPECT_FALSE(book.FindUser("carol").has_value());
  EXPECT_EQ(store->LoadAudit(10, 0, false)->size(), 1u);
}

TEST_P(StoreAccessTest, RecordsComeNewestFirstAndByPages) {
  std::unique_ptr<Store> store = Open();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(store
                    ->CommitAccess({}, {.time = Nanos(i),
                                        .who = "w",
                                        .from = "f",
                                        .what = "x",
                                        .target = "t",
                                        .outcome = "OK",
                                        .detail = "d",
                                        .refused = i % 2 == 1})
                    .ok());
  }
  const std::vector<AuditRecord> newest = store->LoadAudit(2, 0, false).value();
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].time, Nanos(4));
  EXPECT_EQ(newest[0].target, "t");
  EXPECT_EQ(newest[0].detail, "d");
  EXPECT_EQ(store->LoadAudit(10, newest[1].sequence, false)->size(), 3u);
  EXPECT_EQ(store->LoadAudit(10, 0, true)->size(), 2u);
}

// Everybody can cause refusals. So a refusal may replace an older refusal, but never a change.
TEST_P(StoreAccessTest, TheOldestRefusalsGoAndChangesStay) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->CommitAccess({}, {.who = "change"}).ok());
  std::vector<Effect> refusals;
  for (int i = 0; i < 10'007; ++i) refusals.push_back(InsertAudit{{.time = Nanos(i), .refused = true}, JobId()});
  ASSERT_TRUE(store->Commit(refusals).ok());
  ASSERT_TRUE(store->Commit({InsertAudit{{.time = Nanos(10'007), .refused = true}, JobId()}}).ok());
  const std::vector<AuditRecord> kept = store->LoadAudit(20'000, 0, true).value();
  EXPECT_EQ(kept.size(), 10'000u);
  EXPECT_EQ(kept.back().time, Nanos(8));
  EXPECT_EQ(store->LoadAudit(20'000, 0, false)->back().who, "change");
}

}  // namespace
}  // namespace lynx::server

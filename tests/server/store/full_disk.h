// Simulates a full disk. It limits a store's file to a number of pages of 4 KiB, or to its present size if that is larger.
#ifndef LYNX_TESTS_SERVER_STORE_FULL_DISK_H_
#define LYNX_TESTS_SERVER_STORE_FULL_DISK_H_

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/store/sqlite_engine.h"
#include "server/store/store.h"

namespace lynx::server {

struct StoreForTests {
  static void LimitPages(Store& store, int64_t pages) {
    auto& engine = static_cast<SqliteEngine&>(*store.engine_);
    LYNX_CHECK(QueryText(engine.db_.get(), absl::StrCat("PRAGMA max_page_count=", pages)).ok());
  }
};

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_STORE_FULL_DISK_H_

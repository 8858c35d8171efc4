#include "worker/collectives/exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "worker/collectives/socket.h"

namespace lynx::worker {
namespace {

constexpr int64_t kCount = 256 << 10;

// One member of a ring of two. The test holds the other ends of both connections.
class ExchangeTest : public testing::Test {
 protected:
  ExchangeTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    own_ = LinkStream(UniqueFd(pair[0]));
    other_ = UniqueFd(pair[1]);
  }

  void HandOver(const void* bytes, size_t count) {
    ASSERT_EQ(send(other_.get(), bytes, count, 0), static_cast<ssize_t>(count));
  }
  void TakeAll() {
    std::vector<char> sink(1 << 20);
    while (recv(other_.get(), sink.data(), sink.size(), 0) > 0) {}
  }
  void ReceiveAll(Exchange& exchange) {
    while (exchange.Receive(own_, staging_).state == IoState::kMoved) {}
  }

  LinkStream own_;
  UniqueFd other_;
  std::vector<char> staging_ = std::vector<char>(256 << 10);
  std::vector<float> data_ = std::vector<float>(kCount, 1.0f);
};

TEST_F(ExchangeTest, WakesUpOftenOnlyForWhatIsPassedOn) {
  const OperationHeader header{OperationKind::kAllReduce, 0, kCount};
  Exchange exchange(header, PlanRingAllReduce(2, 0, kCount, sizeof(float)), reinterpret_cast<char*>(data_.data()),
                    Direction::kBoth);
  EXPECT_EQ(exchange.Awaited(), 1);  // waits for the beginning of the peer's data
  const OperationHeaderBytes announced = EncodeOperationHeader(header);
  HandOver(announced.data(), announced.size());
  ReceiveAll(exchange);
  const int64_t passed_on = exchange.Awaited();
  EXPECT_GT(passed_on, 1 << 10);
  EXPECT_LT(passed_on, kCount);
  // The half that this rank sums arrives in pieces. The exchange must not wait for more bytes than are still to come.
  std::vector<float> theirs(kCount / 2, 2.0f);
  int64_t to_come = kCount / 2 * 4;
  for (const char* at = reinterpret_cast<const char*>(theirs.data()); to_come > 0;) {
    const int64_t piece = std::min<int64_t>(to_come, 50'001);  // a piece ends inside an element
    HandOver(at, static_cast<size_t>(piece));
    ReceiveAll(exchange);
    at += piece;
    to_come -= piece;
    if (to_come > 0) {
      EXPECT_LE(exchange.Awaited(), to_come);
    }
    EXPECT_GE(exchange.Awaited(), 1);
  }
  for (IoState state = IoState::kMoved; state == IoState::kMoved || !exchange.sent();) {
    state = exchange.Send(own_).state;
    TakeAll();
  }
  EXPECT_GT(exchange.Awaited(), 4 * passed_on);  // no neighbour waits for the rest, so the thread need not wake up often
}

}  // namespace
}  // namespace lynx::worker

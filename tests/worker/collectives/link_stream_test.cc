// Tests connections as streams of bytes, plain and encrypted. The bytes that are sent must arrive, in pieces of any size, and
// no other bytes.
#include "worker/collectives/link_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>

#include "common/rng.h"
#include "worker/collectives/frame_cipher.h"

namespace lynx::worker {
namespace {

const std::string kSecret(64, 'b');
const Nonce kNonce{};

struct StreamPair {
  explicit StreamPair(bool encrypt) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    own = LinkStream(UniqueFd(pair[0]));
    other = LinkStream(UniqueFd(pair[1]));
    if (!encrypt) return;
    own.Encrypt(kSecret, ProofRole::kConnects, "opening", kNonce);
    other.Encrypt(kSecret, ProofRole::kAccepts, "opening", kNonce);
  }
  LinkStream own, other;
};

std::string SomeText(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(Mix64(i));
  return text;
}

ssize_t SendPart(LinkStream& stream, std::string_view text) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return stream.Send({&piece, 1});
}

class LinkStreamTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(PlainAndEncrypted, LinkStreamTest, testing::Bool());

TEST_P(LinkStreamTest, BytesArriveInBothDirectionsInPiecesOfAnySize) {
  StreamPair streams(GetParam());
  const std::string texts[2] = {SomeText(3'000'000), SomeText(1'234'567)};
  LinkStream* const ends[2] = {&streams.own, &streams.other};
  size_t sent[2] = {};
  std::string received[2];
  std::string buffer(200'000, '\0');
  uint64_t turn = 0;
  while (received[0].size() < texts[1].size() || received[1].size() < texts[0].size()) {
    for (int i = 0; i < 2; ++i) {
      const size_t bytes = 1 + Mix64(++turn) % 150'000;
      if (sent[i] < texts[i].size()) {
        // After EAGAIN, more or fewer bytes may be offered, as long as they begin with the same ones.
        const ssize_t done = SendPart(*ends[i], std::string_view(texts[i]).substr(sent[i], bytes));
        if (done < 0) {
          ASSERT_EQ(errno, EAGAIN);
        } else {
          sent[i] += static_cast<size_t>(done);
        }
      }
      const ssize_t got = ends[i]->Receive(std::span(buffer).first(1 + Mix64(++turn) % (buffer.size() - 1)));
      if (got < 0) {
        ASSERT_EQ(errno, EAGAIN);
        EXPECT_FALSE(ends[i]->has_unread());
      } else {
        ASSERT_GT(got, 0);
        received[i].append(buffer, 0, static_cast<size_t>(got));
      }
    }
  }
  EXPECT_TRUE(received[1] == texts[0]);
  EXPECT_TRUE(received[0] == texts[1]);
}

TEST_P(LinkStreamTest, TheEndOfTheConnectionIsTold) {
  StreamPair streams(GetParam());
  ASSERT_TRUE(streams.own.SendShort("bye"));
  streams.own.Close();
  std::string buffer(10, '\0');
  EXPECT_EQ(streams.other.Receive(buffer), 3);
  EXPECT_EQ(streams.other.Receive(buffer), 0);
}

// If bytes have already been received, the thread must not wait for the socket. And it must not wait for more bytes than can
// still come.
TEST(LinkStream, SaysWhatIsAwaited) {
  StreamPair plain(false), streams(true);
  EXPECT_EQ(plain.other.AwaitedOnWire(1000), 1000);
  EXPECT_EQ(streams.other.AwaitedOnWire(1000), 1000);
  ASSERT_TRUE(streams.own.SendShort(std::string(100, 'x')));
  std::string frame(kMaxFrameBytes, '\0'), out(10, '\0');
  frame.resize(static_cast<size_t>(recv(streams.other.fd(), frame.data(), frame.size(), 0)));
  ASSERT_EQ(frame.size(), 100 + kFrameHeadBytes + kFrameTagBytes);
  const auto arrives = [&](size_t from, size_t bytes) {
    ASSERT_EQ(send(streams.own.fd(), frame.data() + from, bytes, 0), static_cast<ssize_t>(bytes));
  };
  arrives(0, 3);
  EXPECT_EQ(streams.other.Receive(out), -1);
  EXPECT_EQ(streams.other.AwaitedOnWire(1000), 1);
  arrives(3, 2);
  EXPECT_EQ(streams.other.Receive(out), -1);
  EXPECT_EQ(streams.other.AwaitedOnWire(1000), 99 + static_cast<int64_t>(kFrameTagBytes));
  EXPECT_EQ(streams.other.AwaitedOnWire(1), 99 + static_cast<int64_t>(kFrameTagBytes));  // a part of a frame gives nothing
  EXPECT_FALSE(streams.other.has_unread());
  arrives(5, frame.size() - 5);
  EXPECT_EQ(streams.other.Receive(out), 10);
  EXPECT_TRUE(streams.other.has_unread());
  std::string rest(1000, '\0');
  EXPECT_EQ(streams.other.Receive(rest), 90);
  EXPECT_FALSE(streams.other.has_unread());
  EXPECT_EQ(streams.other.AwaitedOnWire(7), 7);
}

// An attacker between the ends changes, shortens, repeats or swaps frames.
TEST(LinkStream, NothingForgedIsGivenOut) {
  const auto attack = [](const std::function<std::string(std::string first, std::string second)>& change) {
    StreamPair streams(true);
    std::string frames[2];
    for (std::string& frame : frames) {
      EXPECT_TRUE(streams.own.SendShort("plain text"));
      frame.resize(kMaxFrameBytes);
      frame.resize(static_cast<size_t>(recv(streams.other.fd(), frame.data(), frame.size(), 0)));
    }
    const std::string sent = change(frames[0], frames[1]);
    EXPECT_EQ(send(streams.own.fd(), sent.data(), sent.size(), 0), static_cast<ssize_t>(sent.size()));
    shutdown(streams.own.fd(), SHUT_WR);
    std::string given, buffer(100, '\0');
    while (true) {
      const ssize_t got = streams.other.Receive(buffer);
      if (got == 0) return given + "(closed)";
      if (got < 0) return given + (errno == EBADMSG ? "(forged)" : "(error)");
      given.append(buffer, 0, static_cast<size_t>(got));
    }
  };
  EXPECT_EQ(attack([](auto first, auto second) { return first + second; }), "plain textplain text(closed)");
  EXPECT_EQ(attack([](auto, auto second) { return second; }), "(forged)");
  EXPECT_EQ(attack([](auto first, auto) { return first + first; }), "plain text(forged)");
  EXPECT_EQ(attack([](auto first, auto second) { return second + first; }), "(forged)");
  EXPECT_EQ(attack([](auto first, auto second) { return first + second.substr(0, second.size() - 1); }), "plain text(closed)");
  EXPECT_EQ(attack([](auto first, auto second) {
              first[0] = static_cast<char>(first[0] - 1);  // a shorter frame
              return first + second;
            }),
            "(forged)");
  EXPECT_EQ(attack([](auto first, auto second) {
              first[2] = 2;  // no frame can have this length
              return first + second;
            }),
            "(forged)");
  EXPECT_EQ(attack([](auto, auto) { return std::string(100, 'p'); }), "(forged)");
  EXPECT_EQ(attack([](auto first, auto second) {
              second.back() = static_cast<char>(second.back() ^ 1);
              return first + second;
            }),
            "plain text(forged)");
}

TEST(LinkStream, ABytesOwnDirectionCannotBeSentBack) {
  StreamPair streams(true);
  ASSERT_TRUE(streams.own.SendShort("plain text"));
  std::string frame(kMaxFrameBytes, '\0'), out(10, '\0');
  frame.resize(static_cast<size_t>(recv(streams.other.fd(), frame.data(), frame.size(), 0)));
  ASSERT_EQ(send(streams.other.fd(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  EXPECT_EQ(streams.own.Receive(out), -1);
  EXPECT_EQ(errno, EBADMSG);
}

}  // namespace
}  // namespace lynx::worker

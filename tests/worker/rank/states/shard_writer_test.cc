#include "worker/rank/states/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>

namespace lynx::worker {
namespace {

// Returns the header of two tensors of four bytes each.
SafetensorsHeader Header() {
  SafetensorsHeader header;
  header.Append("a", {1});
  header.Append("b", {1});
  return header;
}

TensorContent ContentOf(std::string& bytes) {
  return [&bytes](size_t tensor) -> absl::StatusOr<std::span<const char>> {
    return std::span<const char>(bytes).subspan(tensor * 4, 4);
  };
}

class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

absl::Status ReadAll(const SafetensorsHeader& header, const TensorContent& content, std::string& read) {
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const auto bytes = content(i);
    if (!bytes.ok()) return bytes.status();
    read.append(bytes->begin(), bytes->end());
  }
  return absl::OkStatus();
}

TEST(ShardWriter, WritesWhatTheStatesWereWhenItBegan) {
  ShardWriter writer([] { return kGiB; });
  EXPECT_TRUE(writer.Done());
  std::string states = "AAAABBBB", read;
  Gate gate;
  writer.Start(Header(), ContentOf(states), [&](const SafetensorsHeader& header, const TensorContent& content) {
    gate.Wait();
    return ReadAll(header, content, read);
  });
  EXPECT_FALSE(writer.Done());
  states = "CCCCDDDD";
  gate.Open();
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_TRUE(writer.Done() && writer.copied());
  EXPECT_EQ(read, "AAAABBBB");
  // When the first shard is written, the writer must take the next one.
  writer.Start(Header(), ContentOf(states), [&](const SafetensorsHeader& header, const TensorContent& content) {
    read.clear();
    return ReadAll(header, content, read);
  });
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(read, "CCCCDDDD");
}

TEST(ShardWriter, SaysWhyItFailed) {
  ShardWriter writer([] { return kGiB; });
  std::string states = "AAAABBBB";
  writer.Start(Header(), ContentOf(states),
               [](const SafetensorsHeader&, const TensorContent&) { return absl::ResourceExhaustedError("disk full"); });
  EXPECT_EQ(writer.Finish().message(), "disk full");
  const TensorContent broken = [](size_t) -> absl::StatusOr<std::span<const char>> { return absl::InternalError("no states"); };
  writer.Start(Header(), broken, [](const SafetensorsHeader&, const TensorContent&) { return absl::OkStatus(); });
  EXPECT_TRUE(writer.Done());
  EXPECT_EQ(writer.Finish().message(), "no states");
  EXPECT_TRUE(writer.Finish().ok()) << "said once";
}

TEST(ShardWriter, WithoutMemoryForACopyTrainingWaits) {
  Bytes available(15);
  ShardWriter writer([&] { return available; });
  std::string states = "AAAABBBB", read;
  const auto write = [&](const SafetensorsHeader& header, const TensorContent& content) {
    read.clear();
    return ReadAll(header, content, read);
  };
  testing::internal::CaptureStderr();
  writer.Start(Header(), ContentOf(states), write);
  EXPECT_TRUE(writer.Done()) << "before Start returned";
  EXPECT_FALSE(writer.copied());
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(read, "AAAABBBB");
  writer.Start(Header(), ContentOf(states), write);
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "checkpoints are written while training waits: a copy of this rank's states takes 8 B, and 15 B are left\n");
  available = Bytes(16);
  writer.Start(Header(), ContentOf(states), write);
  EXPECT_TRUE(writer.copied());
  EXPECT_TRUE(writer.Finish().ok());
  available = Bytes(0);  // the memory for the copy exists already
  writer.Start(Header(), ContentOf(states), write);
  EXPECT_TRUE(writer.copied());
  EXPECT_TRUE(writer.Finish().ok());
}

TEST(ShardWriter, GivesUpWhenItsRankEnds) {
  Gate started;
  absl::Status status;
  std::string states = "AAAABBBB";
  {
    ShardWriter writer([] { return kGiB; });
    writer.Start(Header(), ContentOf(states), [&](const SafetensorsHeader&, const TensorContent& content) {
      started.Open();
      // Reads the content again and again, as if there were very many tensors.
      do {
        status = content(0).status();
      } while (status.ok());
      return status;
    });
    started.Wait();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace lynx::worker

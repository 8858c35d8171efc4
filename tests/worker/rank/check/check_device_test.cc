// Tests the check of a device. A good device must pass, whatever the size and the type. A single wrong element or word must be
// found.
#include "worker/rank/check/check_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "worker/backend/cpu/cpu_backend.h"

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;

// A backend that counts its products. It computes one wrong element in one product, or refuses to allocate memory.
class DamagedBackend : public cpu::CpuBackend {
 public:
  int wrong_product = 0;  // the number of the wrong product, counted from 1; 0: none is wrong
  int64_t wrong_element = 0;
  bool refuses = false;
  int64_t products = 0;

  absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) override {
    if (refuses) return absl::ResourceExhaustedError("cannot allocate it");
    return CpuBackend::Allocate(bytes, what);
  }
  void LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out, float* y) override {
    CpuBackend::LinearForward(x, w, bias, n, in, out, y);
    if (++products == wrong_product) y[wrong_element] += 1;
  }
};

// A backend whose memory the host cannot address. Copy number `wrong_copy`, counted from 1, changes one bit.
class ForgetfulBackend : public cpu::CpuBackend {
 public:
  bool host_addressable() const override { return false; }
  void Copy(const void* from, Bytes bytes, void* to) override {
    CpuBackend::Copy(from, bytes, to);
    if (++copies_ == wrong_copy) static_cast<char*>(to)[1000] ^= 4;
  }
  int wrong_copy = 0;

 private:
  int copies_ = 0;
};

TEST(CheckDevice, WhatIsRightPasses) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const int32_t size : {1, 7, 64, 130, 256}) {
      DamagedBackend backend;
      EXPECT_TRUE(CheckDevice({.size = size, .type = type}, backend).ok())
          << size << CheckDevice({.size = size, .type = type}, backend);
    }
  }
  ForgetfulBackend elsewhere;
  EXPECT_TRUE(CheckDevice({.size = 64, .type = DataType::kBfloat16}, elsewhere).ok());
}

TEST(CheckDevice, AWrongElementIsNamed) {
  for (const int product : {1, 2}) {
    for (const int64_t element : {0, 64 * 64 - 1, 61 * 64 + 53}) {
      DamagedBackend backend;
      backend.wrong_product = product;
      backend.wrong_element = element;
      const absl::Status status = CheckDevice({.size = 64}, backend);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("the device computes wrongly: element (" + std::to_string(element / 64) + ", " +
                            std::to_string(element % 64) + ") of the product of matrices of 64 x 64 is"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("in product " + std::to_string(product)));
    }
  }
}

TEST(CheckDevice, AWordThatIsNotKeptIsNamed) {
  for (const int copy : {1, 2, 3, 4}) {  // the check writes and reads the memory twice, which makes four copies
    ForgetfulBackend backend;
    backend.wrong_copy = copy;
    const absl::Status status = CheckDevice({.size = 64}, backend);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << copy;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("memory of the device does not keep what is written: word 250 of 12288 is 0x"))
        << copy;
  }
}

TEST(CheckDevice, MemoryThatIsRefusedIsNoFailedCheck) {
  DamagedBackend backend;
  backend.refuses = true;
  EXPECT_EQ(CheckDevice({.size = 64}, backend).code(), absl::StatusCode::kResourceExhausted);
}

TEST(CheckDevice, IsOfTheTypeThatTheJobComputesWith) {
  ForgetfulBackend device;
  cpu::CpuBackend host;
  EXPECT_EQ(DeviceCheckOf(device, DataType::kBfloat16).type, DataType::kBfloat16);
  EXPECT_GT(DeviceCheckOf(device, DataType::kFloat32).size, DeviceCheckOf(host, DataType::kFloat32).size);
}

}  // namespace
}  // namespace lynx::worker

// Construction, memory and name of the CPU backend. The ops are in the other files of this folder.
#include "worker/backend/cpu/cpu_backend.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx::worker {
namespace cpu {
namespace {

// Makes the processor round denormal numbers to zero. Arithmetic on them is several times slower, and their exact values do not
// matter for training.
void FlushDenormalsToZero() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" ::"r"(control | (uint64_t{1} << 24)));
#endif
}

}  // namespace

CpuBackend::~CpuBackend() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.bytes);
}

void CpuBackend::Fill(float* x, int64_t count, float value) { std::fill_n(x, count, value); }

int64_t CpuBackend::WordsUnlike(float mark, const float* x, int64_t count) {
  const auto bits = std::bit_cast<uint32_t>(mark);
  while (count > 0 && std::bit_cast<uint32_t>(x[count - 1]) == bits) --count;
  return count;
}

void CpuBackend::Copy(const void* from, Bytes bytes, void* to) { std::memcpy(to, from, static_cast<size_t>(bytes.value)); }

absl::StatusOr<std::span<float>> CpuBackend::Allocate(Bytes bytes, const std::string& what) {
  LYNX_CHECK(bytes.value >= 0 && bytes.value % static_cast<int64_t>(sizeof(float)) == 0);
  if (bytes.value == 0) return std::span<float>();
  const auto size = static_cast<size_t>(bytes.value);
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", FormatBytes(bytes), " (", bytes.value, " bytes) for ",
                                                     what, ": ", std::string(std::strerror(errno)),
                                                     "; free memory on this node or lower the job's memory per rank"));
  }
  mappings_.push_back({address, size});
  return std::span<float>(static_cast<float*>(address), size / sizeof(float));
}

void CpuBackend::Release(std::span<float> memory) {
  if (memory.empty()) return;
  const auto found =
      std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) { return m.address == memory.data(); });
  LYNX_CHECK(found != mappings_.end() && found->bytes == memory.size_bytes());
  munmap(found->address, found->bytes);
  mappings_.erase(found);
}

absl::StatusOr<Bytes> CpuBackend::FreeMemory() const {
  return absl::UnimplementedError(absl::StrCat(Name(), " has no memory of its own"));
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> CpuBackend::MakeQueue() {
  return absl::UnimplementedError(absl::StrCat(Name(), " has no queues of work beside its ops"));
}

std::string CpuBackend::Name() const {
  // The text is "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...". Its first two words are name and version.
  std::string config = openblas_get_config();
  const size_t first_space = config.find(' ');
  if (first_space != std::string::npos) config.resize(std::min(config.size(), config.find(' ', first_space + 1)));
  return absl::StrCat("cpu: ", config, " ", openblas_get_corename());
}

}  // namespace cpu

namespace {

// Makes OpenBLAS allocate its buffer now, before anything else is allocated. Otherwise OpenBLAS allocates it in the first large
// product, and tries again forever if there is no memory. After this call, only later allocations can lack memory, and they can
// return an error.
void TakeBlasMemory() {
  constexpr int kSize = 256;
  const std::vector<float> ones(size_t{kSize} * kSize, 1.0f);
  std::vector<float> product(ones.size());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1.0f, ones.data(), kSize, ones.data(), kSize,
              0.0f, product.data(), kSize);
  LYNX_CHECK(product.back() == kSize);
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads) {
  LYNX_CHECK(threads >= 1);
  openblas_set_num_threads(threads);
  cpu::FlushDenormalsToZero();
  TakeBlasMemory();
  return std::make_unique<cpu::CpuBackend>();
}

}  // namespace lynx::worker

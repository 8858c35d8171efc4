#include "cli/connect/unary_call.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/standby.h"
#include "proto/message_limit.h"

namespace lynx::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kUnavailable[] = "14";  // grpc::StatusCode::UNAVAILABLE
constexpr size_t kPrefix = 5;          // a message's prefix: whether it is compressed, and its length

struct Target {
  sockaddr_storage address{};
  socklen_t size = 0;
};

// Parses an address such as "127.0.0.1:7470" or "[::1]:7470".
std::optional<Target> ParseTarget(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 || port > 65535)
    return std::nullopt;
  std::string host = text.substr(0, colon);
  Target target;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&target.address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&target.address);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    target.size = sizeof *v4;
    return target;
  }
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return std::nullopt;
  host = host.substr(1, host.size() - 2);
  if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<uint16_t>(port));
  target.size = sizeof *v6;
  return target;
}

class UnaryCall {
 public:
  // `heard_by`: the time by which the server must have sent something.
  UnaryCall(const std::string& message, Clock::time_point deadline, Clock::time_point heard_by)
      : deadline_(deadline), heard_by_(std::min(deadline, heard_by)) {
    request_.push_back('\0');
    for (int shift = 24; shift >= 0; shift -= 8) request_.push_back(static_cast<char>(message.size() >> shift));
    request_ += message;
  }
  ~UnaryCall() {
    nghttp2_session_del(session_);
    if (fd_ >= 0) ::close(fd_);
  }
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  bool Connect(const Target& target) {
    fd_ = ::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return false;
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&target.address), target.size) == 0) return true;
    if (errno != EINPROGRESS || !Await(POLLOUT)) return false;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }

  bool Begin(const std::string& authority, const std::string& method) {
    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnClose);
    const int made = nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    if (made != 0 || nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0) != 0) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    const std::string patience = absl::StrCat(std::max<int64_t>(1, left), "m");
    const std::vector<std::pair<std::string_view, std::string_view>> fields = {
        {":method", "POST"},       {":scheme", "http"}, {":path", method},
        {":authority", authority}, {"te", "trailers"},  {"content-type", "application/grpc"},
        {"grpc-timeout", patience}};
    std::vector<nghttp2_nv> headers;
    for (const auto& [name, value] : fields) {
      headers.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                         reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
                         NGHTTP2_NV_FLAG_NONE});
    }
    const nghttp2_data_provider body{.source = {.ptr = this}, .read_callback = OnRead};
    return nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &body, nullptr) > 0;
  }

  // Exchanges data with the server. Returns true once the server has ended the call.
  bool Run() {
    std::vector<uint8_t> buffer(64 << 10);
    while (!closed_) {
      // If the other side does not speak HTTP/2, the session stops wanting to read.
      if (!Send() || nghttp2_session_want_read(session_) == 0 || !Await(POLLIN)) return false;
      const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      heard_ = heard_ || got > 0;
      if (got <= 0 || nghttp2_session_mem_recv(session_, buffer.data(), static_cast<size_t>(got)) != got) return false;
    }
    return true;
  }

  std::optional<std::string> Message() const {
    if (http_status_ != "200" || grpc_status_ != "0" || answer_.size() < kPrefix || answer_[0] != '\0') return std::nullopt;
    uint32_t size = 0;
    for (size_t i = 1; i < kPrefix; ++i) size = size << 8 | static_cast<uint8_t>(answer_[i]);
    if (answer_.size() - kPrefix != size) return std::nullopt;
    return answer_.substr(kPrefix);
  }
  std::optional<std::string> Leader() const {
    return stands_by_ && grpc_status_ == kUnavailable ? std::optional(leader_) : std::nullopt;
  }

 private:
  bool Await(short events) {
    while (true) {
      const Clock::time_point end = heard_ ? deadline_ : heard_by_;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd one{.fd = fd_, .events = events, .revents = 0};
      const int ready = left <= 0 ? 0 : ::poll(&one, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

  // Sends all data that is ready, with as few writes as possible.
  bool Send() {
    std::string waiting;
    while (true) {
      const uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size < 0) return false;
      waiting.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
      if (size == 0) break;
    }
    for (size_t sent = 0; sent < waiting.size();) {
      const ssize_t wrote = ::send(fd_, waiting.data() + sent, waiting.size() - sent, MSG_NOSIGNAL);
      if (wrote > 0) {
        sent += static_cast<size_t>(wrote);
      } else if (errno != EINTR && (errno != EAGAIN || !Await(POLLOUT))) {
        return false;
      }
    }
    return true;
  }

  static ssize_t OnRead(nghttp2_session*, int32_t, uint8_t* buffer, size_t length, uint32_t* flags, nghttp2_data_source* source,
                        void*) {
    auto* call = static_cast<UnaryCall*>(source->ptr);
    const size_t size = std::min(length, call->request_.size() - call->given_);
    std::memcpy(buffer, call->request_.data() + call->given_, size);
    call->given_ += size;
    if (call->given_ == call->request_.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }
  static int OnHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_size, const uint8_t* value,
                      size_t value_size, uint8_t, void* user) {
    auto* call = static_cast<UnaryCall*>(user);
    const std::string_view field(reinterpret_cast<const char*>(name), name_size);
    const std::string_view text(reinterpret_cast<const char*>(value), value_size);
    if (field == ":status") call->http_status_ = text;
    if (field == "grpc-status") call->grpc_status_ = text;
    if (field == kStandbyKey) call->stands_by_ = true;
    if (field == kLeaderKey) call->leader_ = text;
    return 0;
  }
  static int OnData(nghttp2_session*, uint8_t, int32_t, const uint8_t* data, size_t size, void* user) {
    auto* call = static_cast<UnaryCall*>(user);
    if (call->answer_.size() + size > kMaxMessageBytes + kPrefix) return NGHTTP2_ERR_CALLBACK_FAILURE;
    call->answer_.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int OnClose(nghttp2_session*, int32_t, uint32_t, void* user) {
    static_cast<UnaryCall*>(user)->closed_ = true;
    return 0;
  }

  const Clock::time_point deadline_, heard_by_;
  bool heard_ = false;
  bool stands_by_ = false;
  std::string leader_;
  int fd_ = -1;
  nghttp2_session* session_ = nullptr;
  std::string request_;
  size_t given_ = 0;  // bytes of request_ that were given to the HTTP/2 session
  std::string http_status_, grpc_status_, answer_;
  bool closed_ = false;
};

}  // namespace

bool IsCalledUnary(const std::string& address) { return ParseTarget(address).has_value(); }

UnaryAnswer CallUnary(const std::string& address, const std::string& method, const std::string& message, Nanos timeout,
                      Nanos silence) {
  const std::optional<Target> target = ParseTarget(address);
  if (!target.has_value() || message.size() > kMaxMessageBytes) return {.message = std::nullopt};
  const Clock::time_point now = Clock::now();
  UnaryCall call(message, now + std::chrono::nanoseconds(timeout.value), now + std::chrono::nanoseconds(silence.value));
  if (!call.Connect(*target) || !call.Begin(address, method) || !call.Run()) {
    return {.message = std::nullopt};
  }
  return {.message = call.Message(), .ended = true, .leader = call.Leader()};
}

}  // namespace lynx::cli

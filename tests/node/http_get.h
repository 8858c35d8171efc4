// Makes one request, for tests of a daemon's pages.
#ifndef LYNX_TESTS_NODE_HTTP_GET_H_
#define LYNX_TESTS_NODE_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "common/fd.h"

namespace lynx {

// Sends `request` to 127.0.0.1 and says that nothing more follows. Returns what the server answers, or "" if no server answers.
inline std::string HttpSend(int port, const std::string& request) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "";
  if (::write(fd.get(), request.data(), request.size()) < 0) return "";
  ::shutdown(fd.get(), SHUT_WR);
  std::string answer;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(fd.get(), buffer, sizeof(buffer))) > 0) answer.append(buffer, static_cast<size_t>(got));
  return answer;
}

// Returns the status line, the headers and the page, or "" if no server answers.
inline std::string HttpGet(int port, const std::string& path) {
  return HttpSend(port, "GET " + path + " HTTP/1.0\r\nHost: x\r\n\r\n");
}

}  // namespace lynx

#endif  // LYNX_TESTS_NODE_HTTP_GET_H_

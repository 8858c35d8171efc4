// What a server that stands by tells its callers. Several servers may name the same store; one of them leads, and only it
// answers calls. A server that stands by refuses each call unread, with UNAVAILABLE and this metadata at the call's end.
#ifndef LYNX_COMMON_STANDBY_H_
#define LYNX_COMMON_STANDBY_H_

namespace lynx {

// Trailing metadata. kStandbyKey: kStandbyValue says that the call was refused unread because this server stands by; so every
// call may be made again at another address. kLeaderKey: HOST:PORT by which clients reach the server that leads; absent where
// that is not known.
inline constexpr char kStandbyKey[] = "lynx-standby";
inline constexpr char kStandbyValue[] = "1";
inline constexpr char kLeaderKey[] = "lynx-leader";

}  // namespace lynx

#endif  // LYNX_COMMON_STANDBY_H_

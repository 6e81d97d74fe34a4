// host_copy and peer_copy: bytes between a device's memory and the host's, or another device's.
//
// What leaves the device (`out`) is `a`, and pieces of what arrived come back as `sample`: `rows` pieces of `width` bytes, `pitch`
// apart. What comes to the device (`in`) is a copy of `a` that lay on the far side since bind, and ends in `c`.
#pragma once

#include <algorithm>

#include "core/arguments.h"

namespace roofline::ops {

struct Transfer {
  static constexpr std::int64_t kPiece = 64, kPieces = 64;  // bytes, and at most so many: nothing beside the timed transfer

  bool in, out;
  std::int64_t size_bytes;
  const void* a = nullptr;   // [size_bytes]
  void* c = nullptr;         // [size_bytes]; in
  void* sample = nullptr;    // [rows * width]; out

  std::int64_t width() const { return std::min(size_bytes, kPiece); }
  std::int64_t rows() const { return std::min(size_bytes / width(), kPieces); }
  std::int64_t pitch() const { return size_bytes / rows(); }

  static Transfer from(const Arguments& arguments, const char* in, const char* out) {
    Transfer problem{};
    const int direction = arguments.choice("direction", {in, out, "both"});
    problem.in = direction != 1;
    problem.out = direction != 0;
    problem.size_bytes = arguments.dimension("size_bytes");
    problem.a = arguments.tensor("a", DType::int8, {problem.size_bytes}).data;
    if (problem.in) problem.c = arguments.tensor("c", DType::int8, {problem.size_bytes}).data;
    if (problem.out) problem.sample = arguments.tensor("sample", DType::int8, {problem.rows() * problem.width()}).data;
    return problem;
  }
};

struct HostCopy : Transfer {
  static constexpr const char* op = "host_copy";

  static HostCopy from(const Arguments& arguments) { return {Transfer::from(arguments, "to_device", "from_device")}; }
};

struct PeerCopy : Transfer {
  static constexpr const char* op = "peer_copy";

  std::int64_t peer;  // the other device's number

  static PeerCopy from(const Arguments& arguments) {
    return {Transfer::from(arguments, "from_peer", "to_peer"), arguments.integer("peer")};
  }
};

}  // namespace roofline::ops

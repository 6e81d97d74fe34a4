// A tensor is a view: it never owns its memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace roofline {

enum class Role : std::uint8_t {
  in,        // read
  out,       // written, never read
  in_out,    // read and written
  constant,  // read, the same in every launch: bind may pack it
};

using Shape = std::vector<std::int64_t>;

inline std::string text(const Shape& shape) {
  std::string all = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) all += (i ? ", " : "") + std::to_string(shape[i]);
  return all + "]";
}

// Product of dimensions; throws where it leaves 63 bits, naming `what`.
inline std::int64_t product(const Shape& shape, const std::string& what) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) throw Error(what + ": negative dimension in " + text(shape));
    if (dimension != 0 && elements > std::numeric_limits<std::int64_t>::max() / dimension)
      throw Error(what + ": " + text(shape) + " has more than 2^63 elements; use smaller dimensions");
    elements *= dimension;
  }
  return elements;
}

struct Tensor {
  std::string name;
  void* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;
  Shape strides;  // in elements; empty means C order
  Role role = Role::in;

  std::int64_t elements() const { return product(shape, name); }
  std::int64_t size_bytes() const { return roofline::size_bytes(dtype, elements()); }

  bool contiguous() const {
    if (strides.empty()) return true;
    if (strides.size() != shape.size()) return false;
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    return true;
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace roofline

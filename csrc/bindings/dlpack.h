// DLPack: tensors of other libraries without a copy, in and out. Its structs are a stable ABI and declared here, as its
// specification gives them, versions 0 ("dltensor") and 1 ("dltensor_versioned").
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/memory.h"

namespace roofline::dlpack {

struct Device {
  std::int32_t type, id;
};

struct Type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct View {
  void* data;
  Device device;
  std::int32_t dimensions;
  Type dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C order
  std::uint64_t byte_offset;
};

struct Managed {
  View tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  std::uint32_t major, minor;
};

enum Flag : std::uint64_t { read_only = 1, is_copied = 2 };

struct Versioned {
  Version version;
  void* context;
  void (*deleter)(Versioned*);
  std::uint64_t flags;
  View tensor;
};

static_assert(sizeof(View) == 48 && sizeof(Managed) == 64 && sizeof(Versioned) == 80, "DLPack's layout on 64-bit machines");

// A tensor taken out of its capsule. Its producer's deleter is called once, when this dies.
class Taken {
 public:
  explicit Taken(const py::capsule& capsule);  // throws Error for any other object, or one that was taken before
  ~Taken();
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(view().data) + view().byte_offset; }
  std::pair<int, int> device() const { return {view().device.type, view().device.id}; }
  std::tuple<int, int, int> dtype() const { return {view().dtype.code, view().dtype.bits, view().dtype.lanes}; }
  std::vector<std::int64_t> shape() const { return list(view().shape); }
  std::vector<std::int64_t> strides() const { return list(view().strides); }  // empty: C order
  bool read_only() const { return versioned_ && (versioned_->flags & Flag::read_only); }

 private:
  void release();
  const View& view() const { return versioned_ ? versioned_->tensor : managed_->tensor; }
  std::vector<std::int64_t> list(const std::int64_t* values) const {
    return values ? std::vector<std::int64_t>(values, values + view().dimensions) : std::vector<std::int64_t>();
  }

  Managed* managed_ = nullptr;  // one of both
  Versioned* versioned_ = nullptr;
};

// A capsule over memory from `offset` on, in C order; it shares the memory's ownership. flags: of a versioned one.
py::capsule give(const std::shared_ptr<Memory>& memory, std::int64_t offset, const std::vector<std::int64_t>& shape, Type dtype,
                 Device device, bool versioned, std::uint64_t flags);

}  // namespace roofline::dlpack

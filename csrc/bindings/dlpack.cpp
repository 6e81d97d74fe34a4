// Taking capsules of DLPack apart, and making them.
#include "bindings/dlpack.h"

#include <algorithm>

namespace roofline::dlpack {
namespace {

constexpr const char* kName = "dltensor";
constexpr const char* kUsed = "used_dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";
constexpr const char* kVersionedUsed = "used_dltensor_versioned";
constexpr Version kVersion{1, 0};

// What a capsule of ours points to: the struct, and all that it needs.
template <class Struct>
struct Given {
  Struct managed{};
  std::shared_ptr<Memory> memory;
  std::vector<std::int64_t> shape, strides;
};

template <class Struct>
void drop(Struct* managed) {
  delete static_cast<Given<Struct>*>(managed->context);
}

// Frees a capsule that nobody has taken.
template <class Struct>
void destroy(PyObject* capsule) {
  const char* name = std::is_same_v<Struct, Versioned> ? kVersionedName : kName;
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

template <class Struct>
py::capsule wrap(std::unique_ptr<Given<Struct>> given, Type dtype, Device device, std::int64_t offset, std::uint64_t flags) {
  const std::int64_t bits = product({product(given->shape, "dlpack"), dtype.bits}, "dlpack: bits");
  std::int64_t elements = 1;
  given->strides.resize(given->shape.size());
  for (std::size_t i = given->shape.size(); i-- > 0;)
    given->strides[i] = elements, elements *= std::max<std::int64_t>(given->shape[i], 1);
  Struct& managed = given->managed;
  managed.tensor = {given->memory->at(offset, bits / 8),
                    device,
                    static_cast<std::int32_t>(given->shape.size()),
                    dtype,
                    given->shape.data(),
                    given->strides.data(),
                    0};
  managed.context = given.get();
  managed.deleter = drop<Struct>;
  const char* name = kName;
  if constexpr (std::is_same_v<Struct, Versioned>) managed.version = kVersion, managed.flags = flags, name = kVersionedName;
  PyObject* capsule = PyCapsule_New(&managed, name, destroy<Struct>);
  if (!capsule) throw py::error_already_set();
  given.release();  // the capsule's from here on
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace

Taken::Taken(const py::capsule& capsule) {
  PyObject* object = capsule.ptr();
  if (PyCapsule_IsValid(object, kVersionedName)) {
    auto* found = static_cast<Versioned*>(PyCapsule_GetPointer(object, kVersionedName));
    if (found->version.major != kVersion.major)
      throw Error("DLPack " + std::to_string(found->version.major) + "." + std::to_string(found->version.minor) +
                  " is newer than this build understands (1.x)");
    PyCapsule_SetName(object, kVersionedUsed);
    versioned_ = found;
  } else if (PyCapsule_IsValid(object, kName)) {
    managed_ = static_cast<Managed*>(PyCapsule_GetPointer(object, kName));
    PyCapsule_SetName(object, kUsed);
  } else {
    throw Error("not a DLPack capsule that is still to be taken");
  }
  const int dimensions = view().dimensions;
  if (dimensions < 0 || (dimensions > 0 && !view().shape)) {
    release();
    throw Error("a DLPack tensor of " + std::to_string(dimensions) + " dimensions without its shape");
  }
}

Taken::~Taken() { release(); }

void Taken::release() {
  if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
}

py::capsule give(const std::shared_ptr<Memory>& memory, std::int64_t offset, const std::vector<std::int64_t>& shape, Type dtype,
                 Device device, bool versioned, std::uint64_t flags) {
  if (versioned)
    return wrap(std::unique_ptr<Given<Versioned>>(new Given<Versioned>{{}, memory, shape, {}}), dtype, device, offset, flags);
  return wrap(std::unique_ptr<Given<Managed>>(new Given<Managed>{{}, memory, shape, {}}), dtype, device, offset, 0);
}

}  // namespace roofline::dlpack

// Memory of a device as Python holds it: our own, or borrowed from somebody who is kept alive as long.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/backend.h"

namespace roofline {

namespace py = pybind11;

// Dropped with the interpreter lock held, wherever the last owner dies.
inline std::shared_ptr<py::object> shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            py::gil_scoped_acquire gil;
            delete held;
          }};
}

// Ctrl-C, where Python's main thread asks.
inline void check_signals() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// While it lives the device is this thread's, and the interpreter lock another's: who waits for the one never holds the other.
class Working {
 public:
  explicit Working(Backend& backend) : held_(backend.turn(), check_signals) {}

 private:
  py::gil_scoped_release release_;
  Turn::Held held_;
};

// Freed, or given back, with the last reference: Python's, a bound kernel's or that of a consumer of DLPack.
class Memory {
 public:
  Memory(std::shared_ptr<Backend> backend, std::int64_t size_bytes) : backend_(std::move(backend)), size_bytes_(size_bytes) {
    if (size_bytes < 0) throw Error("memory: the size must not be negative, got " + std::to_string(size_bytes));
    data_ = backend_->allocate(static_cast<std::size_t>(size_bytes));
  }
  Memory(std::shared_ptr<Backend> backend, std::uintptr_t address, std::int64_t size_bytes, py::object owner)
      : backend_(std::move(backend)), size_bytes_(size_bytes), data_(reinterpret_cast<void*>(address)),
        owner_(shared(std::move(owner))) {
    if (size_bytes < 0 || (address == 0 && size_bytes > 0)) throw Error("memory: there is nothing to borrow");
  }
  ~Memory() {
    if (!owner_) backend_->release(data_, static_cast<std::size_t>(size_bytes_));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const Backend& backend() const { return *backend_; }
  std::int64_t size_bytes() const { return size_bytes_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
  bool on_host() const { return backend_->host_memory(); }
  double huge_page_share() const { return backend_->huge_page_share(data_, static_cast<std::size_t>(size_bytes_)); }

  char* at(std::int64_t offset, std::int64_t size) const {
    if (offset < 0 || size < 0 || offset > size_bytes_ - size)
      throw Error("memory: " + std::to_string(size) + " bytes at offset " + std::to_string(offset) + " do not fit in " +
                  std::to_string(size_bytes_));
    return static_cast<char*>(data_) + offset;
  }

  void fill(const std::string& dtype, std::int64_t elements, const std::string& kind, std::uint64_t seed, std::int64_t offset) {
    const DType type = dtype_named(dtype);
    const Fill fill = kind == "uniform" ? Fill::uniform : kind == "zeros" ? Fill::zeros : kind == "pattern" ? Fill::pattern
                      : throw Error("memory: fill must be uniform, zeros or pattern, got '" + kind + "'");
    char* start = at(offset, roofline::size_bytes(type, product({elements, 8}, "memory") / 8));
    const Working working(*backend_);
    backend_->fill(start, type, elements, fill, seed);
  }

  void write(const py::array& source, std::int64_t offset) {
    require_plain(source);
    if (!(source.flags() & py::array::c_style)) throw Error("memory: the array to copy in must be contiguous in C order");
    char* start = at(offset, source.nbytes());
    const void* from = source.data();
    const auto size = static_cast<std::size_t>(source.nbytes());
    const Working working(*backend_);
    backend_->copy_in(start, from, size);
  }

  // All of `source`, memory of the same device.
  void copy(const Memory& source, std::int64_t offset) {
    if (source.backend_ != backend_) throw Error("memory: the source of a copy is of another device");
    char* start = at(offset, source.size_bytes_);
    const Working working(*backend_);
    backend_->copy_in(start, source.data_, static_cast<std::size_t>(source.size_bytes_));
  }

  void read(py::array& target, std::int64_t offset) const {
    require_plain(target);
    if (!(target.flags() & py::array::c_style)) throw Error("memory: the array to copy out to must be contiguous in C order");
    const char* start = at(offset, target.nbytes());
    void* to = target.mutable_data();
    const auto size = static_cast<std::size_t>(target.nbytes());
    const Working working(*backend_);
    backend_->copy_out(to, start, size);
  }

 private:
  static void require_plain(const py::array& array) {
    if (py::cast<bool>(array.dtype().attr("hasobject"))) throw Error("memory: an array of Python objects has no bytes to copy");
  }

  std::shared_ptr<Backend> backend_;
  std::int64_t size_bytes_;
  void* data_ = nullptr;
  std::shared_ptr<py::object> owner_;  // of borrowed memory
};

}  // namespace roofline

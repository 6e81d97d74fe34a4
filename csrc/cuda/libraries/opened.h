// A library that the backend opens on first use, one for the process.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/shared_object.h"

namespace roofline::cuda {

// A library of the process: the file preferred, then the system's; its soname finds a copy that is loaded already (PyTorch's).
template <class Library>
class Opened {
 public:
  void prefer(const char* name, const std::string& path) {
    if (path.empty()) throw Error(std::string("set_library_path: the path of ") + name + " is empty");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (library_) throw Error(std::string("set_library_path: ") + name + " is open already (" + library_->path + ")");
    preferred_ = path;
  }

  // open: of a list of files. What it throws is thrown, and tried again at the next call.
  template <class Open>
  const Library& get(const std::string& soname, Open open) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!library_) {
      std::vector<std::string> files;
      if (!preferred_.empty()) files.push_back(preferred_);
      files.push_back(soname);
      library_ = std::make_unique<Library>(open(files));
    }
    return *library_;
  }

 private:
  std::mutex mutex_;
  std::string preferred_;
  std::unique_ptr<Library> library_;
};

template <class Library>
Opened<Library>& opened() {
  static Opened<Library> one;
  return one;
}

// 130101 is 13.1.1: major * 10000 + minor * 100 + patch, as cuBLASLt and NCCL (since 2.9) tell it.
inline std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
}

// What `library` gives, or why it cannot be used.
template <class Library>
LibraryInfo info_of(const char* name, const Library& (*library)()) {
  try {
    const Library& found = library();
    return {name, found.version, found.path, ""};
  } catch (const Unsupported& why) {
    return {name, "", "", why.what()};
  }
}

}  // namespace roofline::cuda

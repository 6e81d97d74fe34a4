// Libraries opened on first use: the files that may be one, tried in turn, and why none could be used.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"

namespace roofline::cuda {

class SharedObject {
 public:
  // Throws Unsupported with the system's reason.
  explicit SharedObject(const std::string& file)
      // RTLD_LOCAL: its symbols must not meet those of another copy in the process.
      : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)), file_(file) {
    if (handle_) return;
    const char* why = dlerror();
    throw Unsupported(why ? why : "it cannot be opened");
  }

  template <class Function>
  void take(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle_.get(), symbol));
    if (!function) throw Unsupported(std::string("it has no symbol ") + symbol);
  }

  // Once more, and for ever: threads and handlers of such a library outlive any closing.
  void keep() const { dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL); }

  // Of the file that holds a function of it; empty where unknown.
  template <class Function>
  static std::string path_of(Function* function) {
    Dl_info found{};
    return dladdr(reinterpret_cast<void*>(function), &found) && found.dli_fname ? found.dli_fname : "";
  }

 private:
  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
  std::string file_;
};

// What `open` makes of the first of `files` that can be used. Throws Unsupported with the reasons of all, and the cure.
template <class Library>
Library open_first(const char* name, const std::vector<std::string>& files, Library (*open)(const std::string&),
                   const std::string& cure) {
  std::string reasons;
  for (const std::string& file : files) {
    try {
      return open(file);
    } catch (const Unsupported& why) {
      const std::string reason = why.what();
      reasons += (reasons.empty() ? "" : "; ") + (reason.find(file) == std::string::npos ? file + ": " + reason : reason);
    }
  }
  throw Unsupported(std::string(name) + " cannot be used: " + (reasons.empty() ? "no file to try" : reasons) + "; " + cure);
}

// A library of the process: the file preferred, then the system's; by its soname a copy that is loaded already (PyTorch's) is found.
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

}  // namespace roofline::cuda

// Files of libraries that are opened on first use, tried in turn, and why none could be used.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace roofline {

// Open for as long as this lives, or for ever after keep(): threads and handlers of a library in use outlive any closing.
class SharedObject {
 public:
  // Throws Unsupported with the system's reason.
  explicit SharedObject(const std::string& file)
      // RTLD_LOCAL: its symbols must not meet those of another copy in the process (NumPy's OpenBLAS, PyTorch's oneDNN).
      : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_) return;
    const char* why = dlerror();
    throw Unsupported(why ? why : file + " cannot be opened");
  }
  ~SharedObject() {
    if (handle_ && !kept_) dlclose(handle_);
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  // Finds the symbols of the library's dependencies too; null where there is none.
  template <class Function>
  Function find(const std::string& symbol) const {
    return reinterpret_cast<Function>(dlsym(handle_, symbol.c_str()));
  }

  template <class Function>
  void take(Function& function, const std::string& symbol) const {
    function = find<Function>(symbol);
    if (!function) throw Unsupported("it has no symbol " + symbol);
  }

  void keep() { kept_ = true; }

  // The file that a function came from, since opening by soname does not tell; empty where unknown.
  template <class Function>
  static std::string path_of(Function* function) {
    Dl_info found{};
    return dladdr(reinterpret_cast<void*>(function), &found) && found.dli_fname ? found.dli_fname : "";
  }

 private:
  void* handle_;
  bool kept_ = false;
};

// What `open` makes of the first of `files` that can be used. Throws Unsupported with the reasons of all, and the cure.
template <class Library>
Library open_first(const char* name, const std::string& cure, const std::vector<std::string>& files,
                   Library (*open)(const std::string&)) {
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

}  // namespace roofline

// roofline._core: devices, memory, bound kernels and the sampling policy, as Python sees them. Nothing is decided here.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bindings/dlpack.h"
#include "bindings/memory.h"
#include "build_info.h"
#include "core/backend.h"
#include "core/sampling.h"

namespace py = pybind11;
using namespace py::literals;

namespace roofline {
namespace {

py::object to_python(const Value& value) {
  return std::visit([](const auto& held) -> py::object { return py::cast(held); }, value);
}

py::dict to_python(const std::vector<std::pair<std::string, Value>>& facts) {
  py::dict all;
  for (const auto& [name, value] : facts) all[py::str(name)] = to_python(value);
  return all;
}

py::array_t<double> to_array(const std::vector<double>& values) {
  return py::array_t<double>(static_cast<py::ssize_t>(values.size()), values.data());
}

// A bound kernel with the memory it works on.
struct BoundKernel {
  std::shared_ptr<Backend> backend;
  std::vector<std::shared_ptr<Memory>> memory;
  Bound bound;
  std::string name;  // for profilers
  bool callable = false;
  std::shared_ptr<ForeignStream> stream;  // that a callable launches on
  mutable bool has_run = false;

  std::vector<std::string> steps() const {
    std::vector<std::string> names;
    for (const Step& step : bound.steps) names.push_back(step.name);
    return names;
  }

  std::vector<Launch> launches(int step) const {
    std::vector<Launch> all;
    for (std::size_t i = 0; i < bound.steps.size(); ++i)
      if (step < 0 || i == static_cast<std::size_t>(step)) all.push_back(bound.steps[i].launch);
    return all;
  }

  // Entries of a queue for one launch of a step, or of all.
  std::int64_t entries(int step) const {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < bound.steps.size(); ++i)
      if (step < 0 || i == static_cast<std::size_t>(step)) all += bound.steps[i].entries;
    return all;
  }

  // profiled: it alone is what a profiler is to look at, and nothing holds it back; nor the first run, which may load code. flush:
  // its operands are flushed from the caches first.
  double run(bool profiled, bool flush) const {
    std::vector<std::vector<Launch>> sets(1);
    for (const Step& step : bound.steps)
      sets[0].push_back([&](Queue& queue) {
        const Range range(*backend, step.name);
        step.launch(queue);
      });
    struct Profile {
      Backend* backend;
      ~Profile() {
        if (backend) backend->end_profile();
      }
    };
    const py::gil_scoped_release release;
    std::optional<Turn::Held> turn;  // a callable may run kernels of ours, on threads of its own too
    if (!callable) turn.emplace(backend->turn(), check_signals);
    const Range range(*backend, name);
    if (profiled) backend->begin_profile();
    const Profile profile{profiled ? backend.get() : nullptr};
    const bool gate = !profiled && has_run;
    has_run = true;
    // The system hardly moves the caller within one launch, and to pin and unpin it takes 4 us.
    const Pin pin = callable ? Pin::never : Pin::if_elsewhere;
    const std::vector<std::vector<Extent>> touched(flush ? 1 : 0, bound.memory);
    return backend->run_batch({.sets = &sets, .flush_each = flush, .pin = pin, .host_timed = bound.host_timed,
                               .stream = stream.get(), .gate = gate, .entries = entries(-1), .memory = &touched});
  }
};

using TensorArgument = std::tuple<std::string, std::shared_ptr<Memory>, std::int64_t, std::string, Shape, Shape, std::string>;

Role role_named(const std::string& role) {
  static const std::map<std::string, Role> roles = {
      {"in", Role::in}, {"out", Role::out}, {"in_out", Role::in_out}, {"constant", Role::constant}};
  if (const auto found = roles.find(role); found != roles.end()) return found->second;
  throw Error("tensor role must be in, out, in_out or constant, got '" + role + "'");
}

py::list described(const std::vector<KernelEntry>& kernels) {
  py::list all;
  for (const KernelEntry& kernel : kernels)
    all.append(
        py::dict("operator"_a = kernel.op, "variant"_a = kernel.variant, "dtype"_a = name(kernel.dtype), "needs"_a = kernel.needs));
  return all;
}

using Device = std::shared_ptr<Backend>;

py::list kernels_here(const Backend& device) {
  py::list all = described(device.kernels());
  for (std::size_t i = 0; i < all.size(); ++i) all[i]["missing"] = device.lacks(device.kernels()[i].needs);
  return all;
}

std::shared_ptr<BoundKernel> bind_kernel(const Device& device, const std::string& op, const std::string& variant,
                                         const std::string& dtype, const std::vector<TensorArgument>& tensors,
                                         const std::map<std::string, Value>& values) {
  const DType type = dtype_named(dtype);
  Arguments arguments(op, type);
  auto result = std::make_shared<BoundKernel>();
  result->backend = device;
  for (const auto& [name, memory, offset, tensor_dtype, shape, strides, role] : tensors) {
    Tensor tensor{name, nullptr, dtype_named(tensor_dtype), shape, strides, role_named(role)};
    if (!memory) throw Error("bind: the memory of " + name + " is None");
    tensor.data = memory->at(offset, tensor.size_bytes());
    arguments.add(tensor);
    result->memory.push_back(memory);
  }
  for (const auto& [name, value] : values) arguments.add(name, value);
  std::string variants;
  for (const KernelEntry& kernel : device->kernels()) {
    if (kernel.op != op) continue;
    if (kernel.variant != variant || kernel.dtype != type) {
      variants += (variants.empty() ? "" : ", ") + kernel.variant + " " + name(kernel.dtype);
      continue;
    }
    if (const std::string reason = device->lacks(kernel.needs); !reason.empty())
      throw Unsupported(op + " " + variant + " " + dtype + ": " + reason);
    const Working working(*device);
    result->name = op + " " + variant + " " + dtype;
    const Range range(*device, "bind " + result->name);
    result->bound = kernel.bind(arguments, *device);
    return result;
  }
  throw Unsupported(op + ": no " + variant + " kernel for " + dtype + " on " + device->name() +
                    (variants.empty() ? "; there is none of this operator" : "; there are " + variants));
}

std::shared_ptr<BoundKernel> bind_callable(const Device& device, py::function function, std::optional<std::uintptr_t> stream) {
  auto result = std::make_shared<BoundKernel>();
  result->backend = device;
  result->name = "a callable";
  result->callable = true;
  result->bound.host_timed = !stream;  // it enqueues on streams of its own, and may wait
  if (stream) result->stream = std::make_shared<ForeignStream>(ForeignStream{*stream});
  result->bound.steps.push_back({"call", [held = shared(std::move(function))](Queue&) {
    const Turn::Callable callable(measuring());
    py::gil_scoped_acquire gil;
    (*held)();
  }});
  return result;
}

Policy policy_of(const py::dict& given) {
  const auto setting = [&](const char* name) {
    if (!given.contains(name)) throw Error(std::string("sampling policy: it lacks ") + name);
    return given[name];
  };
  const auto number = [&](const char* name) { return py::cast<double>(setting(name)); };
  return {.warmup_min_s = number("warmup_min_s"), .warmup_max_s = number("warmup_max_s"), .batch_s = number("batch_s"),
          .min_samples = py::cast<int>(setting("min_samples")), .min_s = number("min_s"), .max_s = number("max_s"),
          .noise = number("noise"), .bracket_s = number("bracket_s"), .tries = py::cast<int>(setting("tries"))};
}

using Sets = std::vector<std::shared_ptr<BoundKernel>>;  // of buffers

Target target_of(const Sets& sets, int step, bool flush_each) {
  Target target;
  target.flush_each = flush_each;
  for (const auto& set : sets) {
    if (!set) throw Error("sampling: a set of buffers is None; it must be a bound kernel");
    target.sets.push_back(set->launches(step));
    target.memory.push_back(set->bound.memory);
    target.entries = std::max(target.entries, set->entries(step));
    target.callable = target.callable || set->callable;
    target.host_timed = target.host_timed || set->bound.host_timed;
    target.stream = set->stream;
    target.clock = set->bound.clock;
    target.name = set->name;
  }
  return target;
}

py::dict to_python(const Sampled& result, bool callable) {
  return py::dict("samples_s"_a = to_array(result.samples_s), "launches_per_sample"_a = result.launches_per_sample,
                  "warmup_s"_a = result.warmup_s, "stop_reason"_a = result.stop_reason,
                  "contended"_a = is_contended(result.load, callable), "clock_before_hz"_a = result.clock_before_hz,
                  "clock_after_hz"_a = result.clock_after_hz, "conditions"_a = to_python(result.load.conditions),
                  "throttled"_a = result.load.throttled,
                  "load"_a = py::dict("wall_s"_a = result.load.wall_s, "cpu_share"_a = result.load.cpu_share,
                                      "run_delay_share"_a = result.load.run_delay_share,
                                      "process_run_delay_share"_a = result.load.process_run_delay_share,
                                      "foreign_cores"_a = result.load.foreign_cores));
}

py::dict sample_sets(Backend& device, const Sets& sets, int step, bool flush_each, const py::dict& settings) {
  const Policy policy = policy_of(settings);
  const Target timed = target_of(sets, step, flush_each);
  Sampled result;
  {
    py::gil_scoped_release release;
    result = sample(device, timed, policy, check_signals);
  }
  return to_python(result, timed.callable);
}

using FreezeFunction = std::function<std::size_t(std::vector<std::vector<double>>)>;

// roofs: the sets of each, and whether they are flushed.
py::dict measure_sets(Backend& device, const Sets& sets, bool flush_each, const std::vector<std::pair<Sets, bool>>& roofs,
                      const FreezeFunction& freeze, const py::dict& settings) {
  const Policy policy = policy_of(settings);
  const Target timed = target_of(sets, -1, flush_each);
  std::vector<Target> brackets;
  for (const auto& [roof, flushed] : roofs) brackets.push_back(target_of(roof, -1, flushed));
  Bracketed result;
  {
    py::gil_scoped_release release;
    result = sample_bracketed(device, timed, brackets, policy, [&](const std::vector<std::vector<double>>& before) {
      py::gil_scoped_acquire gil;
      return freeze(before);
    }, check_signals);
  }
  py::dict answer = to_python(result.sampled, timed.callable);
  const auto arrays = [](const std::vector<std::vector<double>>& all) {
    py::list list;
    for (const auto& samples : all) list.append(to_array(samples));
    return list;
  };
  answer["before_s"] = arrays(result.before_s);
  answer["after_s"] = arrays(result.after_s);
  answer["limiting"] = result.limiting;
  answer["repeats"] = result.repeats;
  answer["contended"] = result.contended;
  answer["roof_moved"] = result.roof_moved;
  return answer;
}

py::dict describe_build() {
  namespace info = build_info;
  return py::dict("version"_a = info::kVersion, "date"_a = info::kDate, "compiler"_a = info::kCompiler,
                  "build_type"_a = info::kBuildType, "processor"_a = info::kProcessor, "isas"_a = info::kIsas,
                  "cuda"_a = std::strcmp(info::kCudaBuilt, "ON") == 0, "cuda_why_not"_a = info::kCudaWhyNot,
                  "cuda_version"_a = info::kCudaVersion, "cuda_archs"_a = info::kCudaArchs);
}

// For types whose objects only this module makes: one without its C++ object would be read all the same.
void refuse_new(PyHeapTypeObject* type) {
  type->ht_type.tp_new = [](PyTypeObject* made, PyObject*, PyObject*) -> PyObject* {
    PyErr_Format(PyExc_TypeError, "%s: Python code cannot make one", made->tp_name);
    return nullptr;
  };
}

}  // namespace
}  // namespace roofline

PYBIND11_MODULE(_core, m, py::mod_gil_not_used()) {
  using namespace roofline;
  const py::custom_type_setup made_here(refuse_new);
  m.doc() = "Kernels, devices and the sampling policy of roofline.";

  // The package's own exception types, so that C++ and Python raise the same ones.
  const py::module_ errors = py::module_::import("roofline.errors");
  static PyObject* error = errors.attr("Error").cast<py::object>().release().ptr();
  static PyObject* unsupported = errors.attr("Unsupported").cast<py::object>().release().ptr();
  static PyObject* out_of_memory = errors.attr("OutOfMemory").cast<py::object>().release().ptr();
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Unsupported& e) {
      PyErr_SetString(unsupported, e.what());
    } catch (const OutOfMemory& e) {
      PyErr_SetString(out_of_memory, e.what());
    } catch (const Error& e) {
      PyErr_SetString(error, e.what());
    }
  });

  py::class_<Memory, std::shared_ptr<Memory>>(m, "Memory", made_here)
      .def_property_readonly("size_bytes", &Memory::size_bytes)
      .def_property_readonly("address", &Memory::address)
      .def_property_readonly("on_host", &Memory::on_host)
      .def("view", [](const std::shared_ptr<Memory>& self, std::int64_t offset, std::int64_t size_bytes) {
        if (!self->on_host()) throw Error("memory: it is not the host's; read a copy instead");
        const auto* start = reinterpret_cast<const std::uint8_t*>(self->at(offset, size_bytes));
        return py::array_t<std::uint8_t>(size_bytes, start, py::cast(self));  // keeps the memory alive
      }, "offset"_a, "size_bytes"_a)
      .def("huge_page_share", &Memory::huge_page_share, py::call_guard<py::gil_scoped_release>())
      .def("fill", &Memory::fill, "dtype"_a, "elements"_a, "kind"_a, "seed"_a = 0, "offset"_a = 0)
      .def("write", &Memory::write, "source"_a.noconvert(), "offset"_a = 0)
      .def("read", &Memory::read, "target"_a.noconvert(), "offset"_a = 0)
      .def("copy", &Memory::copy, "source"_a, "offset"_a = 0)
      .def("dlpack", [](const std::shared_ptr<Memory>& self, std::int64_t offset, const Shape& shape, std::pair<int, int> dtype,
                        std::pair<int, int> device, bool versioned, bool copied) {
        const dlpack::Type type{static_cast<std::uint8_t>(dtype.first), static_cast<std::uint8_t>(dtype.second), 1};
        return dlpack::give(self, offset, shape, type, {device.first, device.second}, versioned,
                            copied ? std::uint64_t{dlpack::is_copied} : 0);
      }, "offset"_a, "shape"_a, "dtype"_a, "device"_a, "versioned"_a, "copied"_a = false);

  py::class_<dlpack::Taken>(m, "Taken", made_here)
      .def_property_readonly("address", &dlpack::Taken::address)
      .def_property_readonly("device", &dlpack::Taken::device)
      .def_property_readonly("dtype", &dlpack::Taken::dtype)
      .def_property_readonly("shape", &dlpack::Taken::shape)
      .def_property_readonly("strides", &dlpack::Taken::strides)
      .def_property_readonly("read_only", &dlpack::Taken::read_only);

  py::class_<Turn>(m, "Turn", made_here)
      .def("__enter__", [](Turn& self) {
        const py::gil_scoped_release release;
        self.take(check_signals);
      })
      .def("__exit__", [](Turn& self, const py::args&) { self.give(); });

  py::class_<BoundKernel, std::shared_ptr<BoundKernel>>(m, "BoundKernel", made_here)
      .def_property_readonly("steps", &BoundKernel::steps)
      .def_property_readonly("plan", [](const BoundKernel& self) { return to_python(self.bound.plan.facts()); })
      .def_property_readonly("waits", [](const BoundKernel& self) { return self.stream && self.stream->waits; })
      .def("run", &BoundKernel::run, "profiled"_a = false, "flush"_a = false);

  py::class_<Backend, Device>(m, "Device", made_here)
      .def_property_readonly("name", &Backend::name)
      .def_property_readonly("facts", [](const Backend& self) { return to_python(self.facts()); })
      .def("kernels", &kernels_here)
      .def("available_bytes", &Backend::available_bytes)
      .def("flush_bytes", &Backend::flush_bytes)
      .def("clock_hz", &Backend::clock_hz)
      .def_property_readonly("turn", &Backend::turn, py::return_value_policy::reference_internal)
      .def("share_last_cache", &Backend::share_last_cache, "bytes"_a)
      .def("memory", [](const Device& self, std::int64_t size_bytes) { return std::make_shared<Memory>(self, size_bytes); },
           "size_bytes"_a)
      .def("borrow", [](const Device& self, std::uintptr_t address, std::int64_t size_bytes, py::object owner) {
        return std::make_shared<Memory>(self, address, size_bytes, std::move(owner));
      }, "address"_a, "size_bytes"_a, "owner"_a)
      .def_property_readonly("stream", &Backend::stream_handle)
      .def("wait_for", &Backend::wait_for, "stream"_a)
      .def("signal", &Backend::signal, "stream"_a)
      .def("place_of", [](const Backend& self, std::uintptr_t address) {
        return self.place_of(reinterpret_cast<const void*>(address));
      }, "address"_a)
      .def("bind", &bind_kernel, "operator"_a, "variant"_a, "dtype"_a, "tensors"_a, "values"_a)
      .def("callable", &bind_callable, "function"_a, "stream"_a = py::none())
      .def("sample", &sample_sets, "sets"_a, "step"_a = -1, "flush_each"_a = false, py::kw_only(), "policy"_a)
      .def("measure", &measure_sets, "sets"_a, "flush_each"_a, "roofs"_a, "freeze"_a, "policy"_a);

  m.def("open_device", &open_device, "name"_a, "threads"_a = 0);
  m.def("take", [](const py::capsule& capsule) { return std::make_unique<dlpack::Taken>(capsule); }, "capsule"_a);
  m.def("list_devices", [] {
    py::list all;
    for (const DeviceInfo& device : list_devices())
      all.append(py::dict("name"_a = device.name, "summary"_a = device.summary, "missing"_a = device.missing));
    return all;
  });
  m.attr("measuring") = py::cast(&measuring(), py::return_value_policy::reference);
  m.def("build_info", &describe_build);
  m.def("kernels", [](const std::string& backend) { return described(list_kernels(backend)); }, "backend"_a);
  m.def("set_library_path", &set_library_path, "name"_a, "path"_a);
  m.def("libraries", [] {
    py::list all;
    for (const LibraryInfo& library : list_libraries())
      all.append(
          py::dict("name"_a = library.name, "version"_a = library.version, "path"_a = library.path, "missing"_a = library.missing));
    return all;
  });
}

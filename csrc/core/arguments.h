// What Python hands over: tensors by name and values by name. A contract (ops/) takes them out, and every take is a check.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "core/tensor.h"

namespace roofline {

using Value = std::variant<std::int64_t, double, std::string>;

class Arguments {
 public:
  Arguments(std::string op, DType dtype) : op_(std::move(op)), dtype_(dtype) {}

  void add(Tensor tensor) { tensors_.insert_or_assign(tensor.name, std::move(tensor)); }
  void add(const std::string& name, Value value) { values_.insert_or_assign(name, std::move(value)); }

  const std::string& op() const { return op_; }
  DType dtype() const { return dtype_; }  // of the kernel asked for
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  std::int64_t integer(const std::string& name) const {
    const Value& value = find(name);
    if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
    throw Error(op_ + ": " + name + " must be an integer");
  }

  // An integer of at least 1.
  std::int64_t dimension(const std::string& name) const {
    const std::int64_t value = integer(name);
    if (value < 1) throw Error(op_ + ": " + name + " must be at least 1, got " + std::to_string(value));
    return value;
  }

  void dimensions(std::initializer_list<std::pair<const char*, std::int64_t*>> all) const {
    for (const auto& [name, value] : all) *value = dimension(name);
  }

  bool flag(const std::string& name) const { return integer(name) != 0; }

  double number(const std::string& name) const {
    const Value& value = find(name);
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    throw Error(op_ + ": " + name + " must be a number");
  }

  const std::string& text(const std::string& name) const {
    if (const auto* words = std::get_if<std::string>(&find(name))) return *words;
    throw Error(op_ + ": " + name + " must be a string");
  }

  // Which of the words a value is, by number or as the enum whose members they name in order.
  template <class Index = int>
  Index choice(const std::string& name, std::initializer_list<const char*> words) const {
    const std::string& word = text(name);
    std::string all;
    int index = 0;
    for (const char* one : words) {
      if (word == one) return static_cast<Index>(index);
      all += (index++ ? ", " : "") + std::string(one);
    }
    throw Error(op_ + ": " + name + " must be one of " + all + ", got '" + word + "'");
  }

  // The tensor of this name, of exactly this dtype and shape, in C order.
  const Tensor& tensor(const std::string& name, DType dtype, const Shape& shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw Error(op_ + ": tensor '" + name + "' is missing; expected " + roofline::name(dtype) + " " + roofline::text(shape));
    const Tensor& tensor = found->second;
    const std::string here = op_ + ": tensor '" + name + "' ";
    if (tensor.dtype != dtype)
      throw Error(here + "has dtype " + roofline::name(tensor.dtype) + "; expected " + roofline::name(dtype));
    if (tensor.shape != shape)
      throw Error(here + "has shape " + roofline::text(tensor.shape) + "; expected " + roofline::text(shape));
    if (!tensor.contiguous())
      throw Error(here + "has strides " + roofline::text(tensor.strides) + "; expected C order (make it contiguous first)");
    if (tensor.data == nullptr && tensor.elements() > 0) throw Error(here + "has no memory");
    return tensor;
  }

 private:
  const Value& find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error(op_ + ": value '" + name + "' is missing");
    return found->second;
  }

  std::string op_;
  DType dtype_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Value> values_;
};

}  // namespace roofline

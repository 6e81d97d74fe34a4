// What a call threw, and no more general type than was asked for.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <typeinfo>

template <class Exception, class F>
std::string message(F f) {
  try {
    f();
  } catch (const Exception& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

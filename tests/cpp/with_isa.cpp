// with_isa ISA PROGRAM: runs a program that was compiled for an instruction set, or says why not. It is itself compiled for the
// baseline: a program full of AVX-512 may die before its own first check. Exit status 77: skipped.
#include <unistd.h>

#include <cstdio>

#include "cpu/isa.h"

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: with_isa ISA PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  const std::string reason = roofline::cpu::lacks(words[1]);
  if (!reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  execv(words[2], words + 2);
  std::perror(words[2]);
  return 2;
}

// A child process of a test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

// The exit status of a forked child that does `work`: 0 where it returns true.
template <class F>
int status_of_child(F work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang fails too
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

"""The package's errors. A message says what is wrong, where, and what to change."""


class Error(ValueError):
    """Bad input, or a failure whose message is meant for the user."""


class Unsupported(Error):
    """This device, build or library cannot do it. In a sweep it is a result with its reason, never a crash."""


class OutOfMemory(Error):
    """The device has not the memory a problem needs. In a sweep it is a result with its reason."""

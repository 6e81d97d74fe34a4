"""The package's errors. A message says what is wrong, where, and what to change."""


class Error(Exception):
    """Bad input, or a failure whose message is meant for the user."""


class Unsupported(Error):
    """This device, build or library cannot do it. In a sweep it is a result with its reason, never a crash."""


class OutOfMemory(Error):
    """The device has not the memory a problem needs. In a sweep it is a result with its reason."""


def require_type(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Raises Error naming the argument unless `value` is of `kind`."""
    if not isinstance(value, kind):
        raise Error(f"{name} must be {wanted}, got {value!r:.60}")

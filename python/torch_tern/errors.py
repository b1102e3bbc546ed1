"""The codes of tern's errors and warnings. Each message that tern raises begins with one, "[TERN-OOM] out of memory: ..."; `tern explain TERN-OOM` tells cause and
remedy. The rows are those of src/base/errors.def; docs/errors.md is made from them as well."""
import dataclasses
import functools

from torch_tern._tables import rows


@dataclasses.dataclass(frozen=True)
class Kind:
    code: str  # "TERN-OOM"; never changes
    exception: str  # what Python raises: "OutOfMemoryError" is torch.OutOfMemoryError
    title: str
    cause: str
    remedy: str


@functools.lru_cache
def table() -> dict[str, Kind]:
    """Every kind of error by its code, in the table's order."""
    return {code: Kind(code, exception, title, cause, remedy) for _, code, exception, title, cause, remedy in rows("errors.def") if title != "success"}


def coded(code: str, message: str) -> str:
    """The message with its code in front. `code` must be a row of the table (tested for every call in the package; not looked up here, for the table may be what is
    missing)."""
    return f"[{code}] {message}"

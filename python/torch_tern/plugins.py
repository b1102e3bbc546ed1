"""Which PJRT plug-ins there are on this machine: found by name and by file, nothing is loaded or imported.

Used at registration (the core looks names up along TERN_PLUGIN_PATH and knows nothing of Python's packages), by `tern doctor` and by `tern check`. Whether a plug-in
works is another question: opening one may end a process, so it is tried in a child."""
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import sys

from torch_tern._tables import rows

_PATTERNS = ("*pjrt*.so", "libtpu.so", "*plugin*.so", "*pjrt*.dylib")


@dataclasses.dataclass(frozen=True)
class Plugin:
    name: str  # what TERN_DEVICE takes: "tpu"
    path: str | None  # the shared library; None where it is not installed
    source: str  # how it was found, or "" where it was not: "TERN_PLUGIN_PATH", "entry point jax_plugins", "package libtpu"
    package: str  # the pip package that brings it; "" where unknown
    missing: str  # what to do to have it, "" where it is there


def _known() -> list[tuple[str, str, str, str]]:
    """(name, file, folder within site-packages, pip package) of the plug-ins that tern knows by name."""
    return rows("plugins.def")


def _library_of(package: str) -> str | None:
    """The shared library of a plug-in's Python package, found without importing the package itself."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for pattern in _PATTERNS:
            for path in sorted(pathlib.Path(folder).rglob(pattern)):
                return str(path)
    return None


def _known_by_file(path: str) -> tuple[str, str]:
    """The name and package that the table has for a file in the place where its package puts it; ("", "") for others."""
    for name, file, folder, package in _known():
        if path.endswith(f"/{folder}/{file}"):
            return name, package
    return "", ""


def _from_setting(setting: str) -> list[Plugin]:
    found = []
    for entry in filter(None, setting.split(":")):
        name, equals, path = entry.partition("=")
        if equals:
            missing = "" if os.access(path, os.R_OK) else f"TERN_PLUGIN_PATH gives {path}, which cannot be read"
            found.append(Plugin(name, None if missing else path, "TERN_PLUGIN_PATH", _known_by_file(path)[1], missing))
            continue
        for known, file, folder, package in _known():
            for candidate in (pathlib.Path(entry, folder, file), pathlib.Path(entry, file)):
                if candidate.is_file():
                    found.append(Plugin(known, str(candidate), f"TERN_PLUGIN_PATH ({entry})", package, ""))
        for path in sorted(pathlib.Path(entry).glob("*pjrt*plugin*.so")):
            short = path.stem.removeprefix("pjrt_plugin_").removeprefix("pjrt_c_api_").removesuffix("_plugin").replace("_", "-")
            found.append(Plugin(short, str(path), f"TERN_PLUGIN_PATH ({entry})", "", ""))
    return found


def _from_packages() -> list[Plugin]:
    found = []
    for group in ("xla_plugins", "jax_plugins"):
        for entry in importlib.metadata.entry_points(group=group):
            library = _library_of(entry.value.split(":")[0])
            if library:
                name, package = _known_by_file(library)
                name = name or entry.name.removesuffix("_pjrt").replace("_", "-")
                found.append(Plugin(name, library, f"entry point {group}", entry.dist.name if entry.dist else package, ""))
    for name, file, folder, package in _known():
        for root in sys.path:
            path = pathlib.Path(root or ".", folder, file)
            if path.is_file():
                found.append(Plugin(name, str(path), f"package {package}", package, ""))
                break
    return found


def discover(setting: str | None = None) -> list[Plugin]:
    """Every plug-in that is found, each file once, then the known ones that are not installed, with what to do. `setting` stands for TERN_PLUGIN_PATH (default: the
    environment's)."""
    setting = os.environ.get("TERN_PLUGIN_PATH", "") if setting is None else setting
    found, files, names = [], set(), set()
    for plugin in _from_setting(setting) + _from_packages():
        file = os.path.realpath(plugin.path) if plugin.path else None
        if (plugin.name, file) in names or (file and file in files):
            continue
        files.add(file)
        names.add((plugin.name, file))
        found.append(plugin)
    for name, file, _, package in _known():
        if name not in {plugin.name for plugin in found}:
            found.append(Plugin(name, None, "", package, f"pip package {package} not installed (or give {file}: TERN_PLUGIN_PATH={name}=/path/to/{file})"))
    return found


def plugin_path() -> str:
    """What TERN_PLUGIN_PATH becomes for the core: the user's own entries first, then name=path pairs of the packages."""
    setting = os.environ.get("TERN_PLUGIN_PATH", "")
    pairs = [f"{plugin.name}={plugin.path}" for plugin in _from_packages()]
    return ":".join(([setting] if setting else []) + list(dict.fromkeys(pairs)))

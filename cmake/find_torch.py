"""Prints, for CMake, "torch's folder;its version;Python's include folder;the suffix of extension modules" without importing torch."""
import importlib.metadata
import importlib.util
import pathlib
import sys
import sysconfig

spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(1)
print(
    pathlib.Path(spec.origin).parent,
    importlib.metadata.version("torch"),
    sysconfig.get_path("include"),
    sysconfig.get_config_var("EXT_SUFFIX"),
    sep=";",
)

"""Finding PJRT plug-ins by name and file, without loading one."""
import os

from torch_tern import plugins
from torch_tern._tables import rows


def test_each_known_plugin_is_found_or_says_what_is_missing():
    by_name = {plugin.name: plugin for plugin in plugins.discover("")}
    assert {row[0] for row in rows("plugins.def")} <= set(by_name)
    for plugin in by_name.values():
        if plugin.path is None:
            assert f"pip package {plugin.package} not installed" in plugin.missing
        else:
            assert os.path.isfile(plugin.path) and plugin.missing == "" and plugin.source


def test_what_the_setting_names(tmp_path):
    here, elsewhere = tmp_path / "mine.so", tmp_path / "site"
    here.touch()
    (elsewhere / "libneuronxla").mkdir(parents=True)
    (elsewhere / "libneuronxla" / "libneuronpjrt.so").touch()
    (elsewhere / "pjrt_c_api_toy_plugin.so").touch()
    found = {plugin.name: plugin for plugin in plugins.discover(f"own={here}:gone={tmp_path}/gone.so:{elsewhere}")}
    assert found["own"].path == str(here) and found["own"].source == "TERN_PLUGIN_PATH"
    assert found["gone"].path is None and "cannot be read" in found["gone"].missing
    assert found["neuron"].path == str(elsewhere / "libneuronxla" / "libneuronpjrt.so")
    assert found["toy"].path == str(elsewhere / "pjrt_c_api_toy_plugin.so")


def test_a_file_is_listed_once(tmp_path):
    library = tmp_path / "mine.so"
    library.touch()
    found = [plugin for plugin in plugins.discover(f"own={library}:own={library}") if plugin.path == str(library)]
    assert len(found) == 1

# needs: python3-yaml@/usr/lib/python3/dist-packages/yaml
# grants: the host's Python packages in /usr/lib/python3
"""PyYAML with its C library."""
import yaml

TEXT = "type: a.B\nattributes:\n  names: [x, 'ü']\n  when: 2026-01-02\n"
assert yaml.__with_libyaml__
for loader, dumper in ((yaml.CSafeLoader, yaml.CSafeDumper), (yaml.SafeLoader, yaml.SafeDumper)):
    value = yaml.load(TEXT, Loader=loader)
    assert value["attributes"]["names"] == ["x", "ü"], value
    assert yaml.load(yaml.dump(value, Dumper=dumper), Loader=loader) == value
print("ok")

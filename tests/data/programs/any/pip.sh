# shellcheck shell=bash
# needs: pip3:python3-pip
# grants: python3 -m venv below /session, HOME for the cache, no network for an offline install
set -eux
mkdir /session/pip
cd /session/pip
python3 - <<'PY'
import base64
import hashlib
import zipfile

FILES = {
    "tiny/__init__.py": "def main():\n    print('tiny says hello')\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL":
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
}
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
    record = ""
    for name, text in FILES.items():
        wheel.writestr(name, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text)}\n"
    wheel.writestr("tiny-1.0.dist-info/RECORD", record + "tiny-1.0.dist-info/RECORD,,\n")
PY
python3 -m venv --without-pip venv
/usr/bin/pip3 --python venv/bin/python install --no-index --disable-pip-version-check -q ./tiny-1.0-py3-none-any.whl
test "$(venv/bin/tiny)" = "tiny says hello"
venv/bin/python -c 'import sys, tiny; assert sys.prefix == "/session/pip/venv", sys.prefix'
# And without a venv, as agents do it.
/usr/bin/pip3 install --no-index --disable-pip-version-check -q --target lib ./tiny-1.0-py3-none-any.whl
PYTHONPATH=lib python3 -c 'import tiny; tiny.main()'
echo ok

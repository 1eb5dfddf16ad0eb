"""`cmake --install` and the target `uninstall`, below a directory of their own."""
import os
import shutil
import subprocess

import pytest

from harness import BUILD, PATIENCE, ROOT


def cmake(folder, *words):
    return subprocess.run(["cmake", *map(str, words)], cwd=BUILD, capture_output=True, text=True,
                          env={**os.environ, "DESTDIR": str(folder)}, timeout=300 * PATIENCE, check=False)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                  if not path.is_dir() or path.is_symlink())


@pytest.fixture
def installed(tmp_path):
    if not shutil.which("cmake") or not (BUILD / "CMakeCache.txt").exists():
        pytest.skip("no cmake, or not a build directory")
    done = cmake(tmp_path, "--install", BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    yield tmp_path
    (BUILD / "install_manifest.txt").unlink(missing_ok=True)


def test_every_part_is_installed_and_removed_again(installed):
    names = {os.path.basename(path) for path in files_below(installed)}
    for name in ("sandboxd", "sandboxctl", "sandboxd-api", "sandboxd-egress", "sandboxd-config",
                 "sandbox-shim", "sandbox-loader", "policy.img", "sandboxd.service",
                 "sandboxd-sessions.service", "sandboxd-control.socket", "sandboxd-operator.socket",
                 "sandboxd.slice", "sandboxd.8", "sandboxctl.1"):
        assert name in names or f"{name}.gz" in names, name
    for folder in ("sysusers.d", "tmpfiles.d"):
        assert any(path.endswith(f"{folder}/sandboxd.conf") for path in files_below(installed))
    stranger = next(installed.rglob("sandboxd.service")).parent / "stranger.service"
    stranger.write_text("")
    done = cmake(installed, "-P", ROOT / "cmake/Uninstall.cmake")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_below(installed) == [str(stranger.relative_to(installed))]
    assert not [path for path in installed.rglob("sandboxd") if path.is_dir()
                and path.parent.name == "libexec"]


def test_edited_configuration_outlives_install_and_uninstall(installed):
    config = installed / "etc/sandboxd/sandboxd.conf"
    edited = config.read_text() + "# ours\n"
    config.write_text(edited)
    for words in (("--install", BUILD), ("-P", ROOT / "cmake/Uninstall.cmake")):
        done = cmake(installed, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Kept: {config}" in done.stdout + done.stderr
        assert config.read_text() == edited
    assert files_below(installed) == ["etc/sandboxd/sandboxd.conf"]


def test_unedited_configuration_goes_after_two_installs(installed):
    done = cmake(installed, "--install", BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    done = cmake(installed, "-P", ROOT / "cmake/Uninstall.cmake")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_below(installed) == []


def test_uninstall_without_an_install_is_an_error(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    done = subprocess.run(["cmake", "-P", str(ROOT / "cmake/Uninstall.cmake")], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    assert done.returncode != 0 and "nothing was installed" in done.stderr

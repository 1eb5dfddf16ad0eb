"""A daemon whose state directory, or a folder of it, is a small file system of its own."""
import os
import subprocess

from harness import PATIENCE, Daemon


class SmallDisk(Daemon):
    below = "."
    size = "32m"

    @property
    def folder(self):
        return self.state / self.below

    def start(self):
        if not os.path.ismount(self.folder):
            if self.below == ".":
                self.folder.mkdir(mode=0o755)
            else:
                super().start()  # whose it is, the service knows
                self.stop()
            self.make_disk()
        super().start()

    def make_disk(self):
        st = os.stat(self.folder)
        owner = f"mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size},{owner}", "none", self.folder],
                       check=True, timeout=30 * PATIENCE)

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.folder], check=True, timeout=30 * PATIENCE)

    def fill(self):
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass

    def empty(self):
        os.unlink(self.folder / "filler")

    def leftovers(self):
        return [what for what in super().leftovers() if str(self.state) not in what]

    def done(self):
        try:
            super().done()
        finally:
            subprocess.run(["umount", "-l", self.folder], check=False, timeout=30 * PATIENCE)

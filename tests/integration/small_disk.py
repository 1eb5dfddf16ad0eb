"""A daemon whose state directory, or a folder of it, is a small file system of its own."""
import os
import subprocess

from harness import Daemon


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
            st = os.stat(self.folder)
            self.mount(f"size={self.size},mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}", "-t", "tmpfs", "none")
        super().start()

    def mount(self, options, *more):
        subprocess.run(["mount", "-o", options, *more, self.folder], check=True, timeout=30)

    def remount(self, how):
        self.mount(f"remount,{how}")

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
            subprocess.run(["umount", "-l", self.folder], check=False, timeout=30)

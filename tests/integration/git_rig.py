"""A git server over HTTPS that wants a password: git's own http-backend behind Python's server."""
import base64
import http.server
import os
import ssl
import subprocess
import threading
from urllib.parse import urlsplit

BACKEND = "/usr/lib/git-core/git-http-backend"


def git(*words, cwd=None, **more):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_AUTHOR_NAME": "rig", "GIT_AUTHOR_EMAIL": "rig@example.com",
                   "GIT_COMMITTER_NAME": "rig", "GIT_COMMITTER_EMAIL": "rig@example.com"}
    done = subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=cwd, env=environment, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    return done.stdout.decode().strip()


def make_authority(folder, *names):
    """An authority's and a server's certificate; the PEM of the first, and a file with the second and its key."""
    def openssl(*words, text=None):
        subprocess.run(["openssl", *words], check=True, capture_output=True, input=text, cwd=folder)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=test authority")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "s.key", "-out", "s.csr", "-subj", f"/CN={names[0]}")
    (folder / "ext").write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names))
    openssl("x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "s.pem",
            "-days", "2", "-extfile", "ext")
    (folder / "server.pem").write_bytes((folder / "s.pem").read_bytes() + (folder / "s.key").read_bytes())
    return (folder / "ca.pem").read_text(), folder / "server.pem"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        rig = self.server.rig
        body = self.body()
        rig.seen.append((self.command, self.path, self.headers.get("Host"), self.headers.get("Authorization"),
                         self.headers.get("Transfer-Encoding")))
        place = rig.redirect(self.path) if rig.redirect else None
        if place:
            self.answer(302, [("Location", place)], b"elsewhere")
            return
        if rig.password is not None and self.headers.get("Authorization") != rig.authorization():
            self.answer(401, [("WWW-Authenticate", 'Basic realm="git"')])
            return
        url = urlsplit(self.path)
        environment = {
            "GIT_PROJECT_ROOT": str(rig.folder), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "u", "PATH": os.environ["PATH"],
            "REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": self.command, "PATH_INFO": url.path, "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)), "HOME": "/nonexistent",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run([BACKEND], input=body, stdout=subprocess.PIPE, env=environment, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(lines.pop("Status", "200").split()[0])
        self.answer(status, lines.items(), body)

    do_GET = do_POST = serve


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # clients that do not know the authority, or leave


class GitServer:
    """Repositories of `folder` at https://NAME/R.git, on a socket that is bound; what was asked is in `seen`."""

    def __init__(self, folder, pem, listener, password="token"):
        self.folder = folder
        self.username = "x-access-token"
        self.password = password
        self.redirect = None
        self.seen = []
        self.server = Server(("", 0), Handler, bind_and_activate=False)
        self.server.socket.close()
        self.server.rig = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        listener.listen(64)
        self.server.socket = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def authorization(self):
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def add(self, name, files):
        """A repository with one commit on main."""
        bare = self.folder / f"{name}.git"
        work = self.folder / f"{name}.work"
        git("init", "-q", "--bare", str(bare))
        git("config", "http.receivepack", "true", cwd=bare)
        git("init", "-q", str(work))
        for path, text in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        git("add", "-A", cwd=work)
        git("commit", "-q", "-m", "first", cwd=work)
        git("push", "-q", str(bare), "main", cwd=work)
        return bare

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

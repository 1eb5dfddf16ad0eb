# grants: low ports, setuid of a server to a user of its own, KILL over its children
"""A server that begins as root, binds port 80, becomes another user and is ended by its parent."""
import os
import signal
import socket


def main():
    assert os.geteuid() == 0
    server = socket.create_server(("127.0.0.1", 80))
    pid = os.fork()
    if pid == 0:
        os.setgroups([33])
        os.setresgid(33, 33, 33)
        os.setresuid(33, 33, 33)
        try:
            os.setuid(0)
        except PermissionError:
            connection = server.accept()[0]
            connection.sendall(str(os.getuid()).encode())
            connection.close()
            signal.pause()
        os._exit(1)
    with socket.create_connection(("127.0.0.1", 80)) as client:
        assert client.recv(16) == b"33"
    os.kill(pid, signal.SIGTERM)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    print("ok")


main()

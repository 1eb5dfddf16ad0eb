"""Bytes between one place and another, as they are; TLS goes through from end to end.

usage: relay.py SOCKET URL: who connects to that Unix socket reaches the URL's host. Thus a test in a network namespace of
its own has one host of the world outside.
"""
import contextlib
import socket
import sys
import threading
import urllib.parse


def copy(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)


def carry(client, dial):
    with client, contextlib.suppress(OSError), dial() as server:
        server.settimeout(None)
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()


def serve(listener, dial):
    """Until the listener is closed."""
    listener.settimeout(None)
    while True:
        try:
            client = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=carry, args=(client, dial), daemon=True).start()


def main():
    path, url = sys.argv[1:]
    place = urllib.parse.urlsplit(url)
    there = place.hostname, place.port or 443
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        serve(listener, lambda: socket.create_connection(there, 20))


if __name__ == "__main__":
    main()

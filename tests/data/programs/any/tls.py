# needs: openssl
# grants: /etc/ssl/certs and /etc/ssl/openssl.cnf, loopback TCP
"""The host's CA bundle, and a handshake over loopback with a certificate of our own."""
import os
import ssl
import socket
import subprocess
import tempfile
import threading


def main():
    assert ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().capath
    default = ssl.create_default_context()
    default.load_verify_locations("/etc/ssl/certs/ca-certificates.crt")
    assert default.cert_store_stats()["x509_ca"] > 20, default.cert_store_stats()
    folder = tempfile.mkdtemp()
    key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"], check=True, stderr=subprocess.PIPE)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with server.wrap_socket(listener.accept()[0], server_side=True) as peer:
            peer.sendall(peer.recv(100).upper())

    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.create_default_context(cafile=certificate)
    with client.wrap_socket(socket.create_connection(("localhost", listener.getsockname()[1])),
                            server_hostname="localhost") as peer:
        assert peer.version() == "TLSv1.3"
        peer.sendall(b"hello")
        assert peer.recv(100) == b"HELLO"
    thread.join()
    print("ok")


main()

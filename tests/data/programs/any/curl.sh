# shellcheck shell=bash
# needs: curl openssl
# grants: loopback TCP, AF_UNIX, /etc/ssl/certs, threads of its resolver
set -eux
mkdir /session/curl
cd /session/curl
echo served > page.txt
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem \
	-days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
cat > server.py <<'PY'
import http.server
import ssl
import sys

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
if sys.argv[1:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
PY
coproc PLAIN { exec python3 server.py 2>/dev/null; }
read -r port <&"${PLAIN[0]}"
plain=$PLAIN_PID
python3 server.py tls >tls.port 2>/dev/null &
tls=$!
for _ in $(seq 100); do test -s tls.port && break; sleep 0.05; done
test "$(curl -sS "http://localhost:$port/page.txt")" = served
test "$(curl -sS --cacert cert.pem "https://localhost:$(cat tls.port)/page.txt")" = served
test "$(curl -sS -Z "http://localhost:$port/page.txt" "http://localhost:$port/page.txt" 2>/dev/null | wc -l)" = 2
if curl -sS "https://localhost:$(cat tls.port)/" 2>/dev/null; then exit 1; fi
# Refused at once, never a hang.
status=0
curl -sS -m 5 https://example.com/ 2>/dev/null || status=$?
test $status = 6 || test $status = 7
kill "$plain" $tls
echo ok

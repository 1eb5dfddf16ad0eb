# shellcheck shell=bash
# needs: openssl
# grants: /etc/ssl/openssl.cnf, getrandom
set -eux
mkdir /session/openssl
cd /session/openssl
openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem 2>/dev/null ||
	openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem 2>/dev/null
openssl req -new -key key.pem -subj /CN=x -out x.csr
openssl req -in x.csr -noout -verify 2>/dev/null
echo secret | openssl enc -aes-256-cbc -pbkdf2 -pass pass:x | openssl enc -d -aes-256-cbc -pbkdf2 -pass pass:x | grep -qx secret
openssl dgst -sha256 -sign key.pem -out x.sig x.csr
openssl pkey -in key.pem -pubout -out pub.pem
openssl dgst -sha256 -verify pub.pem -signature x.sig x.csr
openssl rand -hex 16 | grep -qE '^[0-9a-f]{32}$'
test "$(openssl version -d)" = 'OPENSSLDIR: "/usr/lib/ssl"'
echo ok

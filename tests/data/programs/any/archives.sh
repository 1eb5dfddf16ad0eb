# shellcheck shell=bash
# needs: tar gzip bzip2 xz:xz-utils zstd zip unzip
# grants: threads of compressors, utimensat, fchmod, symlinkat; fchown to oneself
set -eux
mkdir -p /session/archives/tree/deep
cd /session/archives
seq 50000 > tree/deep/numbers
ln -s deep/numbers tree/link
ln tree/deep/numbers tree/hard
chmod 750 tree/deep
for kind in gz:-z xz:-J zst:--zstd bz2:-j; do
	tar -c "${kind#*:}" -f "tree.tar.${kind%%:*}" tree
	mkdir "out.${kind%%:*}"
tar -x -C "out.${kind%%:*}" -f "tree.tar.${kind%%:*}"
	diff -r tree "out.${kind%%:*}/tree"
	test "$(stat -c %a "out.${kind%%:*}/tree/deep")" = 750
done
xz -T2 -k tree/deep/numbers
zstd -q -T2 tree/deep/numbers
gzip -k < tree/deep/numbers | gzip -t
zip -qry tree.zip tree
mkdir out.zip
unzip -q tree.zip -d out.zip
diff -r tree out.zip/tree
echo ok

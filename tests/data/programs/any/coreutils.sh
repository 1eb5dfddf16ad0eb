# shellcheck shell=bash
# needs: awk sed find xargs:findutils sort chrt:util-linux ionice:util-linux
# grants: file calls beneath /session and /tmp
set -eux
mkdir -p /session/core/a/b
cd /session/core
seq 1000 | split -l 100 - part.
cat part.* | sort -rn --parallel=2 | head -n 1 | grep -qx 1000
cp -a . ../core-copy
mv ../core-copy ../core-moved
diff -r . ../core-moved
ln -s part.aa link
readlink -f link | grep -qx /session/core/part.aa
install -m 750 part.aa installed
test "$(stat -c %a installed)" = 750
find . -name 'part.*' -print0 | xargs -0 -n 2 -P 2 sha256sum | wc -l | grep -qx 10
dd if=/dev/zero of=zero bs=64k count=16 conv=fsync status=none
truncate -s 1G sparse
test "$(du -sk sparse | cut -f1)" -lt 100
mktemp -d | grep -q ^/session/tmp/
timeout 0.1 sleep 5 || test $? = 124
nohup true >/dev/null 2>&1
test "$(id -un):$(id -gn):$(whoami)" = user:user:user
test "$(env -i /usr/bin/printenv | wc -l)" = 0
touch -d 2026-01-02 part.ab
test "$(date -r part.ab +%F)" = 2026-01-02
df /session | tail -n 1 | grep -q '%'
stat -f /session >/dev/null
mkfifo fifo
{ echo x > fifo & }
grep -qx x < fifo
test "$(nproc)" -ge 1
# What build scripts put in front of make.
nice ionice -c 3 chrt -b 0 taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" true
# shellcheck source=/dev/null
test "$(. /etc/os-release && echo "$ID" | wc -w)" = 1
sync part.aa
shred -u part.ac
if test -e part.ac; then exit 1; fi
chmod -R u+w .
rm -rf /session/core /session/core-moved
echo ok

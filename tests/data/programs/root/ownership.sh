# shellcheck shell=bash
# needs: tar setpriv:util-linux install:coreutils
# grants: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETUID, SETGID over files and processes of the session
set -eux
test "$(id -u)" = 0
mkdir -p /session/root/tree
cd /session/root
install -o 33 -g 33 -m 640 /dev/null tree/data
install -o 101 -g 5 -m 4755 /usr/bin/true tree/program
chown -R 7:7 tree
chown 33:33 tree/data
tar -cf tree.tar tree
rm -r tree
tar --same-owner -xpf tree.tar
test "$(stat -c %u:%g:%a tree/data)" = 33:33:640
test "$(stat -c %u:%g tree/program)" = 7:7
# What is another's is read, written, given away.
install -o 1000 -g 1000 -m 600 /dev/null theirs
echo x > theirs
chmod 644 theirs
# Programs that give up root: postgres, nginx and their like.
test "$(setpriv --reuid 33 --regid 33 --clear-groups id -u)" = 33
setpriv --reuid 1000 --regid 1000 --init-groups sh -c 'echo mine > /session/mine'
test "$(stat -c %u /session/mine)" = 1000
echo ok

# shellcheck shell=bash
# needs: ssh-keygen:openssh-client
# grants: a name for uid 1000 in /etc/passwd
set -eux
mkdir /session/ssh
cd /session/ssh
ssh-keygen -q -t ed25519 -N '' -C test -f key
ssh-keygen -l -f key.pub | grep -q ED25519
echo text > file
ssh-keygen -q -Y sign -f key -n file file
ssh-keygen -q -Y check-novalidate -n file -s file.sig < file >/dev/null
# Without a way out the client says so and does not hang.
status=0
timeout 5 ssh -o BatchMode=yes -o ConnectTimeout=3 git@192.0.2.1 true 2> error || status=$?
test $status = 255
grep -q 192.0.2.1 error
echo ok

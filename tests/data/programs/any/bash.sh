# shellcheck shell=bash
# needs: bash
# grants: setpgid, tcsetpgrp on the session's terminals, SIGCHLD, /dev/fd, /dev/tcp over loopback
set -u
fail() { echo "bash: $*" >&2; exit 1; }
set -m
sleep 100 &
sleep 100 &
test "$(jobs | grep -c Running)" = 2 || fail "jobs: $(jobs)"
kill -STOP %1
for _ in $(seq 100); do jobs | grep -q Stopped && break; sleep 0.02; done
jobs | grep -q Stopped || fail "a stopped job: $(jobs)"
kill -CONT %1 && kill %1 %2
wait
test "$(diff <(seq 3) <(seq 3) && echo same)" = same || fail "process substitution"
test "$(echo named | tee /dev/stderr 2>&1 >/dev/null)" = named || fail "a stream by name"
echo "by name" > /dev/stdout || fail "/dev/stdout"
echo "by name" > /dev/stderr || fail "/dev/stderr"
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
test "$line" = through || fail coproc
trap 'caught=1' USR1
kill -USR1 $$
test "${caught:-}" = 1 || fail trap
echo ok

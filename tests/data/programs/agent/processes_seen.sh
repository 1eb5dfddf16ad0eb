# shellcheck shell=bash
# needs: ps:procps free:procps top:procps
# grants: /proc/stat, meminfo, uptime, loadavg, cpuinfo; no entry of the host's
set -eux
ps aux | grep -q '[p]s aux'
ps -ef --forest >/dev/null
pgrep -u user bash >/dev/null
free -m | grep -q ^Mem
uptime >/dev/null
top -bn1 | grep -q Tasks
test "$(grep -c ^processor /proc/cpuinfo)" -ge 1
test -r /proc/version
test -r /proc/filesystems
test "$(cat /proc/sys/kernel/ostype)" = Linux
test "$(cat /proc/kallsyms /proc/interrupts | wc -c)" = 0
echo ok

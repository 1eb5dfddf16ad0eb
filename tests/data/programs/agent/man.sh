# shellcheck shell=bash
# needs: man:man-db less
# grants: /etc/manpath.config
set -eux
man -w man
man man | grep -q NAME
MANPAGER=cat man -k . >/dev/null 2>&1 || test $? = 16
git help log 2>/dev/null | head -n 1 >/dev/null
echo ok

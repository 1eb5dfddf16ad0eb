# shellcheck shell=bash
# needs: gpg gpg-agent
# grants: mlock within RLIMIT_MEMLOCK, an AF_UNIX socket in HOME, a daemon of its own
set -eux
gpg --batch --quiet --passphrase '' --quick-gen-key user@example.invalid default default never
echo text > /session/text
gpg --batch --quiet --sign --encrypt -r user@example.invalid --trust-model always -o /session/text.gpg /session/text
test "$(gpg --batch --quiet --decrypt /session/text.gpg 2>/dev/null)" = text
gpgconf --kill gpg-agent
echo ok

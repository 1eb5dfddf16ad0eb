# shellcheck shell=bash
# needs: cargo rustc
# grants: the job server's pipe, hard links, flock, threads, a HOME for its registry
set -eux
mkdir /session/cargo
cd /session/cargo
export USER=user CARGO_NET_OFFLINE=true
cargo new -q --vcs none hello 2>/dev/null
cd hello
cargo run -q --offline | grep -qx 'Hello, world!'
echo ok

# shellcheck shell=bash
# needs: redis-cli:redis-tools
# grants: loopback TCP, AF_UNIX, fork with copy on write, epoll, fsync of its append-only file
set -eux
mkdir /session/redis
cd /session/redis
# The server is the same program as the checker, by another name.
ln -s "$(command -v redis-server || command -v redis-check-rdb)" redis-server
./redis-server --port 6379 --bind 127.0.0.1 --unixsocket "$PWD/sock" --appendonly yes --daemonize yes \
	--logfile "$PWD/log" --dir "$PWD" --pidfile "$PWD/pid" >/dev/null
for _ in $(seq 100); do test "$(redis-cli ping 2>/dev/null)" = PONG && break; sleep 0.05; done
redis-cli set key value >/dev/null
test "$(redis-cli -s sock get key)" = value
redis-cli bgsave >/dev/null
for _ in $(seq 100); do test "$(redis-cli info persistence | grep -c rdb_bgsave_in_progress:1)" = 0 && break; sleep 0.05; done
redis-cli info persistence | grep -q rdb_last_bgsave_status:ok
redis-cli eval 'return redis.call("GET", KEYS[1])' 1 key | grep -qx value
redis-cli shutdown nosave
echo ok

# shellcheck shell=bash
# needs: initdb@/usr/lib/postgresql psql:postgresql-client
# grants: SysV and POSIX shared memory, sem_open, AF_UNIX and loopback TCP, sync_file_range, fdatasync
set -eux
bin=$(echo /usr/lib/postgresql/*/bin | cut -d' ' -f1)
mkdir /session/pg
cd /session/pg
"$bin/initdb" -D data -A trust -U user --no-sync --no-locale -E UTF8 >log 2>&1 || { cat log >&2; exit 1; }
"$bin/pg_ctl" -D data -l server.log -w -o "-k $PWD -h 127.0.0.1 -F" start >/dev/null || { cat server.log >&2; exit 1; }
sql() { psql -X -At -v ON_ERROR_STOP=1 -h "$1" -U user -d postgres -c "$2"; }
sql "$PWD" 'CREATE TABLE t AS SELECT generate_series(1, 100000) AS n' >/dev/null
test "$(sql 127.0.0.1 'SET max_parallel_workers_per_gather=2; SELECT sum(n) FROM t' | tail -n 1)" = 5000050000
"$bin/pg_ctl" -D data -m fast -w stop >/dev/null
echo ok

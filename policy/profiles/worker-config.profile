# sandboxd-config: one descriptor in, one bounded answer out, then it exits. Host paths named in the
# file are opened by the supervisor, never here.
profile worker-config
kind worker

filter worker
default errno ENOSYS
include own.rules

# stdio looks at what it reads
allow newfstatat

# sandboxd-config: one descriptor in, one bounded answer out, then it exits. Host paths named in the
# file are opened by the supervisor, never here.
profile worker-config
kind worker

filter worker
default errno ENOSYS
include own.rules

# io: the file on standard input, the answer on standard output, complaints on standard error
allow read readv write writev close
# stdio looks at what it writes to
allow fstat newfstatat lseek
# abort()
allow tgkill

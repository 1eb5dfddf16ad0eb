# sandboxd-api: HTTP on two listening sockets it was given, SQLite in its state directory, frames from
# the shims. No program, no thread, no namespace; its root is empty.
profile worker-api
kind worker

filter worker
default errno ENOSYS
include own.rules
allow @service

# http: connections of clients, files as answers
allow accept4 sendfile
# store: the database, its journal and its shared memory
allow openat newfstatat stat lstat access readlink getcwd
allow pwrite64 ftruncate fallocate fsync fdatasync unlink fchmod
# audit: the full file takes the next name
allow renameat
# how many descriptors and processors there are
allow prlimit64 sysinfo sched_getaffinity sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
# pairs of its own; sockets to others are handed to it, and abstract ones of the host are in reach
allow pipe2
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT

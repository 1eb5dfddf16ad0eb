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
# how many descriptors and processors there are
allow prlimit64 sysinfo sched_getaffinity sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
# link: pairs of its own loop; a Unix socket of this host at most
allow pipe2 connect
socket: arg0 == AF_UNIX allow
socket: else errno EAFNOSUPPORT
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT

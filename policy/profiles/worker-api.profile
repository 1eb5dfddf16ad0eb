# sandboxd-api: HTTP on two listening sockets it was given, SQLite in its state directory, frames from
# the shims. No program, no thread, no namespace; its root is empty.
profile worker-api
kind worker

filter worker
default errno ENOSYS
include own.rules

# http: connections of clients, files as answers
allow accept4 sendmmsg recvmmsg sendfile
# store: the database, its journal and its shared memory
allow openat newfstatat stat lstat access faccessat faccessat2 statx readlink readlinkat getcwd
allow pwrite64 preadv pwritev ftruncate fallocate fsync fdatasync
allow unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir fchmod fchown utimensat
allow getdents64 fstatfs msync fadvise64
# loop: sd-event's sources and its watchdog's look at the clock and the limits
allow inotify_init1 inotify_add_watch inotify_rm_watch pidfd_open waitid pipe2
allow prlimit64 sysinfo sched_getaffinity rt_sigpending rt_sigtimedwait sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM
# log and later adapters on this host: a Unix socket at most
socket: arg0 == AF_UNIX allow
socket: else errno EAFNOSUPPORT
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT
allow connect

# sandboxd-provider: the engine's Unix socket, requests of the api worker, streams between the two. It
# opens no file and knows no network; the one path that it connects to is a descriptor that it was given.
profile worker-provider
kind worker

filter worker
default errno ENOSYS
include own.rules
allow @service

# abstract sockets are the network namespace's, which is empty, and nothing has a path in its root
socket: arg0 == AF_UNIX and arg1 & SOCK_TYPE_MASK == SOCK_STREAM allow
socket: else errno EAFNOSUPPORT
allow connect
# handles; libcurl's own wake-up
socketpair: arg0 == AF_UNIX allow
socketpair: else errno EAFNOSUPPORT
# libraries look for settings
openat: arg2 & OPEN_WRITES == 0 allow
openat: else errno EACCES
allow newfstatat
allow prlimit64 sysinfo sched_getaffinity sched_yield
prctl: arg0 in { PR_SET_NAME PR_GET_NAME PR_GET_DUMPABLE PR_SET_VMA } allow
prctl: else errno EPERM

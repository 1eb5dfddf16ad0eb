# sandbox-template: an image comes in as a descriptor, a root file system is made in a folder that is
# one. It has capabilities of a user namespace over that folder, and sees no other file.
profile worker-template
kind worker

filter worker
default errno ENOSYS
include own.rules

# the source, the report, documents
allow read write close lseek fstat newfstatat
# content, with holes
allow pwrite64 ftruncate
# names, one by one; folders that are read, and renamed before they are removed
allow symlinkat linkat unlinkat renameat2 readlinkat getdents64
# owners and times
allow fchown fchownat utimensat
# user.*; the rest of them are listed only to be counted
allow fsetxattr fgetxattr flistxattr

# Nothing that it makes takes anybody's identity, whatever an image has made of it: a root of the
# host that would run such a file has only the folder's mode between. So no openat2, whose struct no
# filter can see.
openat: arg3 & SET_ID_BITS == 0 allow
openat: else errno EPERM
mkdirat: arg2 & SET_ID_BITS == 0 allow
mkdirat: else errno EPERM
fchmod: arg1 & SET_ID_BITS == 0 allow
fchmod: else errno EPERM
# abort()
allow tgkill

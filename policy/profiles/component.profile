# A Dagster component tried by a data engineer: small, one core, `user` only.
profile component
kind session
# The loader and the components' own programs read nothing at the top level of /proc.
proc subset
root refused

limit tmpfs           256MiB
limit inodes          65536
limit memory          1GiB
limit pids            256
limit files           4096
limit cpu             100
limit cpu-weight      100
limit ptys            16
limit output-rate     10MiB
limit output-max      64MiB
limit ttl             60min
limit ttl-max         720min
limit load-timeout    60s
limit execute-timeout 30min
limit command-timeout 60s

filter command
default errno ENOSYS
include command.rules

filter shim
default errno ENOSYS
include own.rules
include shim.rules

filter helper
default errno ENOSYS
include own.rules
include helper.rules

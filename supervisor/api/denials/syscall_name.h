/*
 * Names of system calls of x86-64, as the kernel's header of this build has them.
 */
#pragma once

const char *syscall_name(int number); /* or NULL */

/*
 * Attacks of docs/THREATS.md as one static program, so that one upload brings them all into a
 * session. Each prints lines "step<TAB>result": `ok` where the attack's step worked, the name of
 * the errno or of the deadly signal where it did not, or a plain value. The runner knows what to
 * expect and where the same program has to succeed.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

int attack_namespaces(int argc, char **argv);
int attack_mounts(int argc, char **argv);
int attack_nested_mounts(int argc, char **argv);
int attack_release_agent(int argc, char **argv);
int attack_uring(int argc, char **argv);
int attack_page_cache(int argc, char **argv);
int attack_template(int argc, char **argv);
int attack_sockets(int argc, char **argv);
int attack_foreign_abi(int argc, char **argv);
int attack_stacked(int argc, char **argv);
int attack_shared_memory(int argc, char **argv);
int attack_filters(int argc, char **argv);
int attack_netlink(int argc, char **argv);
int attack_keyring(int argc, char **argv);
int attack_host_key(int argc, char **argv);
int attack_terminal(int argc, char **argv);
int attack_devices(int argc, char **argv);
int attack_numbers(int argc, char **argv);
int attack_process(int argc, char **argv);
int attack_memory_of(int argc, char **argv);
int attack_limits_of(int argc, char **argv);
int attack_signal(int argc, char **argv);
int attack_exe(int argc, char **argv);
int attack_descriptors(int argc, char **argv);
int attack_pass_descriptor(int argc, char **argv);
int attack_forge_frames(int argc, char **argv);
int attack_identity(int argc, char **argv);
int attack_setuid_copy(int argc, char **argv);
int attack_effective_id(int argc, char **argv);
int attack_abstract(int argc, char **argv);
int attack_socket_files(int argc, char **argv);
int attack_run_directory(int argc, char **argv);
int attack_lock(int argc, char **argv);
int attack_watch(int argc, char **argv);
int attack_lease(int argc, char **argv);
int attack_read_files(int argc, char **argv);
int attack_write_files(int argc, char **argv);
int attack_core(int argc, char **argv);
int attack_exhaust(int argc, char **argv);
int attack_hold(int argc, char **argv);
int attack_reuse_pid(int argc, char **argv);
int attack_leave_group(int argc, char **argv);
int attack_marks(int argc, char **argv);
int attack_core_cookie(int argc, char **argv);

void say(const char *step, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes a file that says that all is taken, and keeps it until somebody removes it. */
int hold_until_removed(const char *path);
/* A system call's result: negative means errno. */
void say_result(const char *step, long result);

/* One step in a child, because it may change or end the process: see FORKED. */
struct forked {
	pid_t pid;
	int fd;
};
struct forked forked_begin(void);
void forked_end(struct forked forked, long result) __attribute__((noreturn));
void forked_wait(const char *step, struct forked forked);

#define FORKED(step, expression)                                                                   \
	do {                                                                                       \
		struct forked forked_ = forked_begin();                                            \
		if (forked_.pid == 0)                                                              \
			forked_end(forked_, (long)(expression));                                   \
		forked_wait(step, forked_);                                                        \
	} while (0)

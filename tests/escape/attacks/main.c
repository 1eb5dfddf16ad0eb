#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks/attack.h"

#define ARRAY_SIZE(x) (sizeof(x) / sizeof((x)[0]))

static const struct attack {
	const char *name;
	int (*run)(int argc, char **argv);
} attacks[] = {
	{"namespaces",      attack_namespaces     },
	{"mounts",          attack_mounts         },
	{"nested-mounts",   attack_nested_mounts  },
	{"release-agent",   attack_release_agent  },
	{"uring",           attack_uring          },
	{"page-cache",      attack_page_cache     },
	{"template",        attack_template       },
	{"sockets",         attack_sockets        },
	{"foreign-abi",     attack_foreign_abi    },
	{"stacked",         attack_stacked        },
	{"filters",         attack_filters        },
	{"shared-memory",   attack_shared_memory  },
	{"netlink",         attack_netlink        },
	{"keyring",         attack_keyring        },
	{"host-key",        attack_host_key       },
	{"terminal",        attack_terminal       },
	{"devices",         attack_devices        },
	{"numbers",         attack_numbers        },
	{"process",         attack_process        },
	{"memory-of",       attack_memory_of      },
	{"limits-of",       attack_limits_of      },
	{"signal",          attack_signal         },
	{"exe",             attack_exe            },
	{"descriptors",     attack_descriptors    },
	{"pass-descriptor", attack_pass_descriptor},
	{"forge-frames",    attack_forge_frames   },
	{"identity",        attack_identity       },
	{"setuid-copy",     attack_setuid_copy    },
	{"effective-id",    attack_effective_id   },
	{"abstract",        attack_abstract       },
	{"socket-files",    attack_socket_files   },
	{"run-directory",   attack_run_directory  },
	{"lock",            attack_lock           },
	{"watch",           attack_watch          },
	{"lease",           attack_lease          },
	{"read-files",      attack_read_files     },
	{"write-files",     attack_write_files    },
	{"core",            attack_core           },
	{"exhaust",         attack_exhaust        },
	{"hold",            attack_hold           },
	{"reuse-pid",       attack_reuse_pid      },
	{"leave-group",     attack_leave_group    },
	{"marks",           attack_marks          },
	{"core-cookie",     attack_core_cookie    },
};

void say(const char *step, const char *format, ...)
{
	va_list args;

	(void)printf("%s\t", step);
	va_start(args, format);
	(void)vprintf(format, args);
	va_end(args);
	(void)printf("\n");
	(void)fflush(stdout);
}

static void say_errno(const char *step, int number)
{
	const char *name = strerrorname_np(number);

	if (name)
		say(step, "%s", name);
	else
		say(step, "errno %d", number);
}

void say_result(const char *step, long result)
{
	if (result < 0)
		say_errno(step, errno);
	else
		say(step, "ok");
}

struct forked forked_begin(void)
{
	int fds[2] = {-1, -1};

	if (pipe(fds) < 0)
		return (struct forked){.pid = -1, .fd = -1};
	pid_t pid = fork();
	(void)close(pid == 0 ? fds[0] : fds[1]);
	return (struct forked){.pid = pid, .fd = pid == 0 ? fds[1] : fds[0]};
}

void forked_end(struct forked forked, long result)
{
	int number = result < 0 ? errno : 0;

	_exit(write(forked.fd, &number, sizeof(number)) != (ssize_t)sizeof(number));
}

void forked_wait(const char *step, struct forked forked)
{
	int number = 0;
	int status = 0;

	if (forked.pid < 0) {
		say(step, "not tried");
		return;
	}
	ssize_t n = read(forked.fd, &number, sizeof(number));
	(void)close(forked.fd);
	if (waitpid(forked.pid, &status, 0) < 0)
		say(step, "lost");
	else if (WIFSIGNALED(status))
		say(step, "SIG%s", sigabbrev_np(WTERMSIG(status)));
	else if (n != (ssize_t)sizeof(number))
		say(step, "lost");
	else if (number != 0)
		say_errno(step, number);
	else
		say(step, "ok");
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(attacks); i++) {
		if (strcmp(argv[1], attacks[i].name) == 0)
			return attacks[i].run(argc - 2, argv + 2);
	}
	(void)fprintf(stderr, "usage: escape ATTACK [ARGUMENTS]\n");
	return 2;
}

#include "supervisor/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#ifndef SANDBOXD_LIBEXECDIR
#define SANDBOXD_LIBEXECDIR "/usr/libexec/sandboxd"
#endif

enum option_kind {
	OPTION_PATH, /* absolute */
	OPTION_TEXT,
	OPTION_SUPERVISOR,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option {
	const char *name;
	enum option_kind kind;
	size_t offset;
	const char *help;
} options[] = {
	{"--runtime-dir",						      OPTION_PATH, offsetof(struct options,                            runtime_dir),
	 "DIR      sockets (default /run/sandboxd)"},
	{"--state-dir",								    OPTION_PATH,								   offsetof(struct options,                                       state_dir),
	 "DIR        instance id, embedded store (default /var/lib/sandboxd)"},
	{"--libexec-dir", OPTION_PATH,            offsetof(struct options,                                                libexec_dir),
	 "DIR      workers, shim and policy (default " SANDBOXD_LIBEXECDIR ")"},
	{"--config",							OPTION_PATH,             offsetof(struct options,							       config),
	 "FILE          configuration (default " OPTIONS_DEFAULT_CONFIG ")"},
	{"--cgroup-parent",					     OPTION_PATH,                                     offsetof(struct options,								    cgroup_parent),
	 "PATH   control group of the sessions' groups (default: the own one)"},
	{"--log-level",             OPTION_TEXT,offsetof(struct options,log_level_text),
	 "LEVEL      error, warning, info or debug (default: the configuration's)"},
	{"--supervisor",							OPTION_SUPERVISOR,					    0,													   "          do not start a keeper"},
	{"--help",								    OPTION_HELP,								  0,					    "                this text"},
	{"--version",								    OPTION_VERSION,									0,					    "             the version"},
};

static void print_help(void)
{
	(void)printf("usage: sandboxd [OPTION...]\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)printf("  %s %s\n", options[i].name, options[i].help);
}

/* *ret_value is set where the argument is --name=VALUE. */
static const struct option *find_option(const char *argument, const char **ret_value)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		size_t length = strlen(options[i].name);

		if (strncmp(argument, options[i].name, length) != 0)
			continue;
		if (argument[length] == '\0') {
			*ret_value = NULL;
			return &options[i];
		}
		if (argument[length] == '=') {
			*ret_value = argument + length + 1;
			return &options[i];
		}
	}
	return NULL;
}

static int take_value(struct options *dest, const struct option *option, const char *value,
		      struct err *err)
{
	if (!value || value[0] == '\0')
		return err_fail(err, -EINVAL, "options", "%s needs a value", option->name);
	if (option->kind == OPTION_PATH && value[0] != '/')
		return err_fail(err, -EINVAL, "options", "%s needs an absolute path", option->name);
	*(const char **)(void *)((char *)dest + option->offset) = value;
	return 0;
}

static int find_log_level(const char *text, enum log_level *ret_level, struct err *err)
{
	int level = log_level_parse(text);

	if (level < 0)
		return err_fail(err, level, "options",
				"--log-level is error, warning, info or debug");
	*ret_level = (enum log_level)level;
	return 0;
}

int options_parse(struct options *ret_options, int argc, char *const argv[], struct err *err)
{
	struct options parsed = {
		.runtime_dir = "/run/sandboxd",
		.state_dir = "/var/lib/sandboxd",
		.libexec_dir = SANDBOXD_LIBEXECDIR,
		.log_level = LOG_LEVEL_INFO,
	};
	int r;

	for (int i = 1; i < argc; i++) {
		const char *value = NULL;
		const struct option *option = find_option(argv[i], &value);

		if (!option)
			return err_fail(err, -EINVAL, "options", "unknown option %s", argv[i]);
		switch (option->kind) {
		case OPTION_HELP:
			print_help();
			return OPTIONS_E_DONE;
		case OPTION_VERSION:
			(void)printf("sandboxd %s\n", SANDBOXD_VERSION);
			return OPTIONS_E_DONE;
		case OPTION_SUPERVISOR:
			parsed.supervisor = true;
			break;
		case OPTION_PATH:
		case OPTION_TEXT:
			if (!value && i + 1 < argc)
				value = argv[++i];
			r = take_value(&parsed, option, value, err);
			if (r < 0)
				return r;
			break;
		}
	}
	if (parsed.log_level_text) {
		r = find_log_level(parsed.log_level_text, &parsed.log_level, err);
		if (r < 0)
			return r;
	}
	*ret_options = parsed;
	return 0;
}

/*
 * watch and top: the same table again and again. On a terminal each takes the place of the one
 * before and is cut to the terminal's height; elsewhere they follow each other.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"
#include "sandboxd/limits.h"

#define DEFAULT_INTERVAL_S 2
#define ONCE_INTERVAL_MS   500

static void on_resize(int signo)
{
	(void)signo; /* ends the wait, nothing else */
}

static void take_resizes(void)
{
	struct sigaction action = {.sa_handler = on_resize};
	sigset_t mask;

	/* Taken in client_wait only, so that none is lost between a table and the wait. */
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGWINCH);
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	(void)sigprocmask(SIG_BLOCK, &mask, NULL);
	(void)sigaction(SIGWINCH, &action, NULL);
}

static bool on_terminal(const struct options *options)
{
	return options->output == OUTPUT_TABLE && isatty(STDOUT_FILENO) == 1;
}

/* Begin a table; the number of lines that fit. */
static size_t begin_table(const struct options *options, bool first)
{
	struct winsize size = {0};

	if (!on_terminal(options)) {
		if (!first && options->output == OUTPUT_TABLE)
			(void)putchar('\n');
		return SIZE_MAX;
	}
	(void)fputs("\033[H\033[2J", stdout);
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 3
		       ? (size_t)size.ws_row - 2
		       : 20;
}

/* Until the next look. False: it is over. */
static bool next_look(struct client *client, const struct options *options)
{
	uint32_t seconds = options->interval_s ? options->interval_s : DEFAULT_INTERVAL_S;

	if (print_flush(stdout) < 0)
		return false;
	client_wait(client, (int)(seconds < 3600 ? seconds : 3600) * 1000);
	return client->signal == 0;
}

/* An interrupt is how these are ended. */
static int ended(const struct client *client, int status)
{
	if (client->signal == SIGINT)
		return EXIT_OK;
	return client->signal ? EXIT_SIGNAL_BASE + client->signal : status;
}

int command_watch(struct client *client, const struct options *options)
{
	bool first = true;
	int status = EXIT_OK;

	take_resizes();
	do {
		json_t *sessions = session_list(client, options->status, &status);

		if (!sessions)
			break;
		if (options->output == OUTPUT_JSON)
			print_json_line(sessions);
		else
			session_list_print(sessions, options, begin_table(options, first));
		json_decref(sessions);
		first = false;
	} while (next_look(client, options));
	return ended(client, status);
}

/* What one session used at one look. */
struct usage {
	char id[ID_TEXT_BYTES];
	char owner[IDENTITY_MAX + 1];
	usec_t at;
	json_int_t cpu_us;
	json_int_t memory_bytes;
	json_int_t memory_limit; /* 0: unknown */
	json_int_t n_pids;
	json_int_t cpu_permille; /* of one core, since the look before; -1: unknown */
};

struct usages {
	struct usage *usage; /* owned */
	size_t n;
};

static void usages_done(struct usages *usages)
{
	free(usages->usage);
	*usages = (struct usages){0};
}

static json_int_t cpu_since(const struct usages *before, const struct usage *now)
{
	for (size_t i = 0; i < before->n; i++) {
		const struct usage *then = &before->usage[i];

		if (str_equal(then->id, now->id) && now->at > then->at)
			return (now->cpu_us - then->cpu_us) * 1000 /
			       (json_int_t)(now->at - then->at);
	}
	return -1;
}

static json_int_t member(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Sessions that end meanwhile, or have no process tree, are left out. */
static bool look_at(struct client *client, const json_t *session, struct usage *usage)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const char *id = session_id(session);
	const json_t *limits =
		json_object_get(json_object_get(session, "sandbox"), "limits_effective");
	char path[512];
	const struct client_request request = {.method = "GET", .path = path};

	*usage = (struct usage){0};
	if (!id || str_copy(usage->id, sizeof(usage->id), id) < 0 ||
	    str_copy(usage->owner, sizeof(usage->owner), print_member(session, "owner")) < 0 ||
	    client_path(path, sizeof(path), API_PREFIX_RUNTIME, id, "/stats") < 0 ||
	    client_perform(client, &request, &reply) < 0 || reply.status != 200)
		return false;
	usage->at = clock_boottime();
	usage->cpu_us = member(reply.doc, "cpu_us");
	usage->memory_bytes = member(reply.doc, "memory_bytes");
	usage->memory_limit = member(limits, "memory_bytes");
	usage->n_pids = member(reply.doc, "pids");
	return true;
}

static int by_use(const void *a, const void *b)
{
	const struct usage *left = a;
	const struct usage *right = b;

	if (left->cpu_permille != right->cpu_permille)
		return left->cpu_permille < right->cpu_permille ? 1 : -1;
	if (left->memory_bytes != right->memory_bytes)
		return left->memory_bytes < right->memory_bytes ? 1 : -1;
	return strcmp(left->id, right->id);
}

/* Replaces *usages by a new look, sorted. Exit status. */
static int look(struct client *client, struct usages *usages)
{
	struct usages now = {0};
	int status;
	json_t *sessions = session_list(client, NULL, &status);
	size_t i;
	json_t *session;

	if (!sessions)
		return status;
	now.usage = calloc(json_array_size(sessions) + 1, sizeof(*now.usage));
	json_array_foreach(sessions, i, session)
	{
		if (!now.usage || client->signal)
			break;
		if (look_at(client, session, &now.usage[now.n])) {
			now.usage[now.n].cpu_permille = cpu_since(usages, &now.usage[now.n]);
			now.n++;
		}
	}
	json_decref(sessions);
	if (!now.usage)
		return EXIT_FAILED;
	qsort(now.usage, now.n, sizeof(*now.usage), by_use);
	usages_done(usages);
	*usages = now;
	return EXIT_OK;
}

static void print_usage(const struct usage *usage)
{
	print_cell(usage->id, 36);
	print_cell(usage->owner, 16);
	if (usage->cpu_permille < 0)
		(void)printf("%6s  ", "-");
	else
		(void)printf("%6.1f  ", (double)usage->cpu_permille / 10);
	(void)printf("%9.2f  %8.1f  ", (double)usage->cpu_us / 1e6,
		     (double)usage->memory_bytes / (1024 * 1024));
	if (usage->memory_limit > 0)
		(void)printf("%5.1f  ",
			     100.0 * (double)usage->memory_bytes / (double)usage->memory_limit);
	else
		(void)printf("%5s  ", "-");
	(void)printf("%5lld\n", (long long)usage->n_pids);
}

static void print_usages(const struct usages *usages, const struct options *options, size_t n_rows)
{
	if (options->output == OUTPUT_TABLE && !options->quiet)
		(void)printf("%-36s  %-16s  %6s  %9s  %8s  %5s  %5s\n", "ID", "OWNER", "CPU%",
			     "CPU (s)", "MEM(MiB)", "MEM%", "PIDS");
	for (size_t i = 0; i < usages->n && i < n_rows; i++)
		if (options->output == OUTPUT_NAME)
			print_name(usages->usage[i].id);
		else
			print_usage(&usages->usage[i]);
}

static void print_usages_json(const struct usages *usages)
{
	json_t *all = json_array();

	for (size_t i = 0; i < usages->n; i++) {
		const struct usage *usage = &usages->usage[i];

		(void)json_array_append_new(
			all, json_pack("{s:s,s:s,s:o,s:I,s:I,s:o,s:I}", "id", usage->id, "owner",
				       usage->owner, "cpu_pct",
				       usage->cpu_permille < 0
					       ? json_null()
					       : json_real((double)usage->cpu_permille / 10),
				       "cpu_us", usage->cpu_us, "memory_bytes", usage->memory_bytes,
				       "memory_limit_bytes",
				       usage->memory_limit ? json_integer(usage->memory_limit)
							   : json_null(),
				       "pids", usage->n_pids));
	}
	print_json_line(all);
	json_decref(all);
}

int command_top(struct client *client, const struct options *options)
{
	struct usages usages = {0};
	bool first = true;
	int status;

	take_resizes();
	/* A rate needs two looks. */
	status = look(client, &usages);
	if (status == EXIT_OK)
		client_wait(client, ONCE_INTERVAL_MS);
	while (status == EXIT_OK && !client->signal) {
		status = look(client, &usages);
		if (status != EXIT_OK)
			break;
		if (options->output == OUTPUT_JSON)
			print_usages_json(&usages);
		else
			print_usages(&usages, options, begin_table(options, first));
		first = false;
		if (options->once || !next_look(client, options))
			break;
	}
	usages_done(&usages);
	return ended(client, status);
}

#include "attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "ctl/channel.h"
#include "ctl/command_events.h"
#include "ctl/print.h"
#include "ctl/terminal.h"
#include "sandboxd/api.h"

#define QUEUED_MAX_BYTES ((size_t)128 * 1024) /* of input: more is not read */
#define WRITE_BYTES      ((size_t)1024)       /* what a descriptor that is ready takes at least */

/* Where "~." may begin. */
enum escape_state {
	ESCAPE_LINE_START,
	ESCAPE_TILDE,
	ESCAPE_WITHIN,
};

struct attachment {
	struct client *client;
	const struct attach_mode *mode;
	struct channel channel;
	struct terminal terminal;
	struct command_events events;
	struct print_stream streams[2];
	enum escape_state escape;
	sigset_t mask_before;
	int signal_fd;
	bool input_open;
	bool left; /* "~." */
};

/* To the service. */

static int send_object(struct attachment *attachment, json_t *object)
{
	char *text = object ? doc_format(object, 0) : NULL;
	int r = text ? channel_send(&attachment->channel, false, text, strlen(text)) : -ENOMEM;

	free(text);
	json_decref(object);
	return r;
}

static int send_size(struct attachment *attachment)
{
	uint16_t rows;
	uint16_t cols;

	terminal_size(&rows, &cols);
	return send_object(attachment, json_pack("{s:s, s:i, s:i}", "type", "resize", "rows",
						 (int)rows, "cols", (int)cols));
}

/* Signals. */

/* As a shell's user expects of a program that is stopped: with the terminal as it was. */
static int stop_ourselves(struct attachment *attachment)
{
	int r;

	terminal_restore(&attachment->terminal);
	(void)raise(SIGSTOP);
	r = terminal_make_raw(&attachment->terminal);
	return r < 0 ? r : send_size(attachment);
}

/* 0, or negative: that is the end. */
static int take_signals(struct attachment *attachment)
{
	struct signalfd_siginfo info;
	int r = 0;

	while (r >= 0 &&
	       io_read(attachment->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGWINCH) {
			r = send_size(attachment);
		} else if (info.ssi_signo == SIGTSTP) {
			r = stop_ourselves(attachment);
		} else {
			attachment->client->signal = (int)info.ssi_signo;
			r = -EINTR;
		}
	}
	return r;
}

static int watch_signals(struct attachment *attachment)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	static const int of_terminals[] = {SIGQUIT, SIGTSTP, SIGWINCH};
	sigset_t mask;

	(void)sigemptyset(&mask);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		(void)sigaddset(&mask, ending[i]);
	for (size_t i = 0; attachment->mode->is_terminal && i < ARRAY_SIZE(of_terminals); i++)
		(void)sigaddset(&mask, of_terminals[i]);
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (sigprocmask(SIG_BLOCK, &mask, &attachment->mask_before) < 0)
		return -errno;
	attachment->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return attachment->signal_fd < 0 ? -errno : 0;
}

static void leave_signals(struct attachment *attachment)
{
	if (attachment->signal_fd < 0)
		return;
	attachment->signal_fd = fd_close(attachment->signal_fd);
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	(void)sigprocmask(SIG_SETMASK, &attachment->mask_before, NULL);
}

/* From the command. */

/* A terminal that is the command's takes its bytes as they are. A reader that is slow must not keep
 * a signal from us. */
static int write_raw(struct attachment *attachment, const char *data, size_t size)
{
	while (size > 0) {
		struct pollfd fds[] = {
			{.fd = STDOUT_FILENO,         .events = POLLOUT},
			{.fd = attachment->signal_fd, .events = POLLIN }
                };
		ssize_t n;
		int r;

		r = poll(fds, ARRAY_SIZE(fds), -1);
		if (r < 0 && errno == EINTR)
			continue; /* as after a stop */
		if (r < 0)
			return -errno;
		r = fds[1].revents ? take_signals(attachment) : 0;
		if (r < 0)
			return r;
		if (!fds[0].revents)
			continue;
		n = io_write(STDOUT_FILENO, data, size < WRITE_BYTES ? size : WRITE_BYTES);
		if (n < 0 && n != -EAGAIN)
			return -ESHUTDOWN;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

static int write_output(void *userdata, int fd, const char *data, size_t length)
{
	struct attachment *attachment = userdata;

	if (attachment->terminal.is_raw && fd == STDOUT_FILENO)
		return write_raw(attachment, data, length);
	return print_stream_write(&attachment->streams[fd - 1], data, length);
}

/* As the other events are, in lines. */
static int print_bytes(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	AUTO_FREE char *encoded = NULL;
	json_t *line;

	if (str_utf8_valid(text, size)) {
		line = json_pack("{s:s, s:s%}", "type", "stdout", "text", text, size);
	} else {
		encoded = malloc(str_base64_bytes(size) + 1);
		if (!encoded)
			return -ENOMEM;
		line = json_pack("{s:s, s:s%}", "type", "stdout", "data", encoded,
				 str_base64(encoded, data, size));
	}
	print_json_line(line);
	json_decref(line);
	return print_flush(stdout);
}

static int on_message(void *userdata, bool is_binary, const uint8_t *data, size_t size)
{
	struct attachment *attachment = userdata;

	if (!is_binary)
		return command_events_line(&attachment->events, (const char *)data, size);
	if (size == 0)
		return 0;
	return attachment->events.json
		       ? print_bytes(data, size)
		       : write_output(attachment, STDOUT_FILENO, (const char *)data, size);
}

/* Input. */

/* What goes to the command of what was typed, at least one byte behind ret, where it may lie; sets
 * left. */
static size_t take_keys(struct attachment *attachment, const char *data, size_t size, char *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < size; i++) {
		enum escape_state was = attachment->escape;
		char c = data[i];

		attachment->escape = c == '\r' || c == '\n' ? ESCAPE_LINE_START : ESCAPE_WITHIN;
		if (was == ESCAPE_LINE_START && c == '~') {
			attachment->escape = ESCAPE_TILDE;
			continue;
		}
		if (was == ESCAPE_TILDE && c == '.') {
			attachment->left = true;
			break;
		}
		if (was == ESCAPE_TILDE && c != '~')
			ret[n++] = '~';
		ret[n++] = c;
	}
	return n;
}

static int take_input(struct attachment *attachment)
{
	char keys[CHANNEL_SEND_MAX_BYTES];
	char *data = keys + 1; /* a "~" that was held back goes before */
	ssize_t n = io_read(STDIN_FILENO, data, sizeof(keys) - 1);

	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		attachment->input_open = false;
		/* A terminal that is gone has nobody before it. */
		attachment->left = attachment->terminal.is_raw;
		return send_object(attachment, json_pack("{s:s}", "type", "eof"));
	}
	if (!attachment->terminal.is_raw)
		return channel_send(&attachment->channel, true, data, (size_t)n);
	n = (ssize_t)take_keys(attachment, data, (size_t)n, keys);
	return n > 0 ? channel_send(&attachment->channel, true, keys, (size_t)n) : 0;
}

/* The loop. */

static int run_once(struct attachment *attachment)
{
	bool reads =
		attachment->input_open && channel_queued(&attachment->channel) < QUEUED_MAX_BYTES;
	struct pollfd fds[] = {
		{.fd = attachment->signal_fd,     .events = POLLIN                              },
		{.fd = attachment->channel.fd,    .events = channel_events(&attachment->channel)},
		{.fd = reads ? STDIN_FILENO : -1, .events = POLLIN                              },
	};
	int r = 0;

	if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents)
		r = take_signals(attachment);
	if (r >= 0 && fds[2].revents)
		r = take_input(attachment);
	if (r >= 0 && !attachment->left && (fds[1].revents || channel_queued(&attachment->channel)))
		r = channel_run(&attachment->channel);
	return r;
}

static int run(struct attachment *attachment)
{
	int r = watch_signals(attachment);

	if (r == 0 && attachment->mode->is_terminal) {
		r = terminal_make_raw(&attachment->terminal);
		if (r == 0)
			r = send_size(attachment);
	}
	while (r == 0 && !attachment->left)
		r = run_once(attachment);
	terminal_restore(&attachment->terminal);
	leave_signals(attachment);
	return r;
}

static int result(const struct attachment *attachment, int r)
{
	const char *text;

	if (attachment->left) {
		(void)fputs(attachment->mode->kills ? "\nsandboxctl: left; the command is ended\n"
						    : "\nsandboxctl: left; the command goes on\n",
			    stderr);
		return attachment->mode->kills ? EXIT_FAILED : EXIT_OK;
	}
	if (attachment->events.exit_status >= 0 && (r == -ENODATA || r == -EPIPE))
		return attachment->events.exit_status;
	if (r != -ENODATA && r != -EPIPE)
		return client_result(attachment->client, r, NULL);
	text = r == -EPIPE ? "the connection ended before the command did"
			   : "the session ended before the command did";
	(void)fprintf(stderr, "sandboxctl: %s\n", text);
	return EXIT_FAILED;
}

static int open_channel(struct attachment *attachment, const char *session, const char *command_id)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char prefix[256];
	char path[512];
	int r = client_path(prefix, sizeof(prefix), API_PREFIX_RUNTIME, session, "/commands");

	if (r >= 0)
		r = client_path(path, sizeof(path), prefix, command_id,
				attachment->mode->kills ? "/attach?on_disconnect=kill" : "/attach");
	if (r >= 0)
		r = channel_open(&attachment->channel, attachment->client, path, &reply);
	/* That status is no success of an ordinary request. */
	return r == 0 && reply.status == 101 ? EXIT_OK
					     : client_result(attachment->client, r, &reply);
}

/* One that was begun for us, and that nobody would ever attach to. */
static void end_command(struct client *client, const char *session, const char *command_id)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	json_t *body = json_pack("{s:s, s:s}", "signal", "KILL", "scope", "tree");
	char prefix[256];
	char path[512];
	const struct client_request request = {.method = "POST", .path = path, .body = body};
	int r = client_path(prefix, sizeof(prefix), API_PREFIX_RUNTIME, session, "/commands");

	if (r >= 0)
		r = client_path(path, sizeof(path), prefix, command_id, "/signal");
	if (r >= 0)
		IGNORE_RESULT(client_perform(client, &request, &reply));
	json_decref(body);
}

int attach_command(struct client *client, const struct options *options, const char *session,
		   const char *command_id, const struct attach_mode *mode)
{
	struct attachment attachment = {
		.client = client,
		.mode = mode,
		.channel = CHANNEL_NULL,
		.signal_fd = -1,
		.input_open = mode->has_input,
		.events = {.exit_status = -1, .json = options->output == OUTPUT_JSON},
	};
	const struct command_output output = {.write = write_output, .userdata = &attachment};
	int r;

	attachment.events.output = &output;
	attachment.channel.message = on_message;
	attachment.channel.userdata = &attachment;
	print_stream_init(&attachment.streams[0], stdout, options->raw);
	print_stream_init(&attachment.streams[1], stderr, options->raw);
	r = open_channel(&attachment, session, command_id);
	if (r == EXIT_OK) {
		r = run(&attachment);
		print_stream_end(&attachment.streams[0]);
		print_stream_end(&attachment.streams[1]);
		r = result(&attachment, r);
	} else if (mode->kills) {
		end_command(client, session, command_id);
	}
	channel_close(&attachment.channel);
	return r;
}

/*
 * sandboxd-config: the one process that parses the configuration. Started by the supervisor with a
 * snapshot of the files as standard input, it writes one struct config_answer to standard output
 * and exits; or it complains on standard error, never with a value, and exits 1.
 *
 * For people and sandboxctl: --table prints every option for the documentation; --check reads files
 * from standard input and only complains; --show prints what is in force. These run without the
 * supervisor and so without its policy, often started by root: what is parsed is parsed as nobody,
 * with no file to reach.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/confine.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "sandboxd/config.h"
#include "sandboxd/worker.h"
#include "supervisor/config/bundle_read.h"
#include "supervisor/config/config_parse.h"
#include "supervisor/config/config_show.h"
#include "supervisor/config/name_servers.h"
#include "supervisor/config/option_table.h"

#define RESOLV_MAX_BYTES 65536

enum mode {
	MODE_ANSWER,
	MODE_TABLE,
	MODE_CHECK,
	MODE_SHOW,
	MODE_USAGE,
};

/* The first complaint, for the supervisor. Without it the status still says that there are some. */
static void tell_reason(const struct buf *complaints)
{
	struct config_refusal refusal = {.magic = CONFIG_REFUSAL_MAGIC};
	const char *end = memchr(complaints->data, '\n', complaints->size);
	size_t length = end ? (size_t)(end - (const char *)complaints->data) : complaints->size;

	if (length >= sizeof(refusal.reason))
		length = sizeof(refusal.reason) - 1;
	memcpy(refusal.reason, complaints->data, length);
	IGNORE_RESULT(io_write_all(STDOUT_FILENO, &refusal, sizeof(refusal)));
}

/* Standard input into *ret_answer. Complaints go to standard error. */
static int read_config(struct config_answer *ret_answer, enum mode mode, enum config_form form,
		       const char *waiting)
{
	AUTO_FREE char *data = NULL;
	struct buf complaints = BUF_NULL(CONFIG_ERROR_MAX_BYTES - 256);
	struct config_text texts[CONFIG_FILES_MAX];
	struct config_settings settings = {0};
	size_t size;
	int n_texts;
	int r;

	r = io_read_file(STDIN_FILENO, sizeof(struct config_bundle) + CONFIG_FILE_MAX_BYTES, &data,
			 &size);
	n_texts = r < 0 ? r : bundle_read(data, size, texts);
	if (n_texts < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "configuration cannot be read", "errno=%d",
			 -n_texts);
		return n_texts;
	}
	r = config_parse(texts, (size_t)n_texts, ret_answer, mode == MODE_SHOW ? &settings : NULL,
			 &complaints);
	/* Complaints that cannot be written change nothing: the status says that there were some.
	 */
	if (complaints.size > 0 &&
	    io_write_all(STDERR_FILENO, complaints.data, complaints.size) < 0)
		r = -EINVAL;
	if (r == -EINVAL && mode == MODE_ANSWER && complaints.size > 0)
		tell_reason(&complaints);
	buf_done(&complaints);
	if (r == 0 && mode == MODE_SHOW)
		config_show(stdout, form, texts, &settings, waiting);
	config_settings_done(&settings);
	return r;
}

static enum mode mode_of(int argc, char *argv[])
{
	if (argc == 1)
		return MODE_ANSWER;
	if (argc == 2 && str_equal(argv[1], "--table"))
		return MODE_TABLE;
	if (argc == 2 && str_equal(argv[1], "--check"))
		return MODE_CHECK;
	if (argc <= 4 && str_equal(argv[1], "--show"))
		return MODE_SHOW;
	return MODE_USAGE;
}

static enum config_form form_of(const char *text)
{
	if (str_equal(text, "json"))
		return CONFIG_FORM_JSON;
	return str_equal(text, "name") ? CONFIG_FORM_NAME : CONFIG_FORM_TABLE;
}

static int usage(void)
{
	static const char text[] =
		"sandboxd-config is started by sandboxd, which gives it the configuration.\n"
		"To look at one: sandboxctl config check [FILE], sandboxctl config show\n"
		"usage: sandboxd-config --table | --check < FILE | --show [FORM [NAMES]] < FILE\n";

	IGNORE_RESULT(io_write_all(STDERR_FILENO, text, sizeof(text) - 1));
	return 2;
}

/* What needs no policy. */
static int confine_by_hand(void)
{
	static const gid_t nobody = 65534;
	struct err err = ERR_NULL;
	int r = 0;

	if (CONFINE_SANITIZED)
		return 0;
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(nobody, nobody, nobody) < 0 ||
			       setresuid(nobody, nobody, nobody) < 0))
		r = -errno;
	if (r == 0)
		r = confine_not_dumpable();
	if (r == 0)
		r = confine_no_files();
	if (r < 0) {
		(void)err_fail(&err, r, "confine", "become nobody, who reaches no file");
		log_err(LOG_LEVEL_ERROR, NULL, "cannot confine itself", &err);
	}
	return r;
}

static int confine(enum mode mode)
{
	return mode == MODE_ANSWER ? confine_fileless_worker(WORKER_FD_POLICY, "worker-config")
				   : confine_by_hand();
}

int main(int argc, char *argv[])
{
	static struct config_answer answer; /* big for a stack, as the next */
	static char resolv[RESOLV_MAX_BYTES];
	ssize_t n_resolv;
	enum mode mode = mode_of(argc, argv);

	log_init("sandboxd-config", LOG_LEVEL_INFO);
	if (mode == MODE_TABLE) {
		option_table_print(stdout);
		return EXIT_SUCCESS;
	}
	/* Only the supervisor gives the policy along. */
	if (mode == MODE_USAGE || (mode == MODE_ANSWER && fcntl(WORKER_FD_POLICY, F_GETFD) < 0))
		return usage();
	/* The last file that it opens: of its own root, as the egress workers' resolver has it. */
	n_resolv = mode == MODE_ANSWER
			   ? io_read_at(AT_FDCWD, "/etc/resolv.conf", resolv, sizeof(resolv))
			   : 0;
	if (confine(mode) < 0)
		return EXIT_FAILURE;
	if (read_config(&answer, mode, form_of(argc > 2 ? argv[2] : ""), argc > 3 ? argv[3] : "") <
	    0)
		return EXIT_FAILURE;
	name_servers_read(resolv, n_resolv > 0 ? (size_t)n_resolv : 0, &answer.egress);
	if (mode == MODE_ANSWER && io_write_all(STDOUT_FILENO, &answer, sizeof(answer)) < 0)
		return EXIT_FAILURE;
	return EXIT_SUCCESS;
}

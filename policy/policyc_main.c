/*
 * sandbox-policyc: the policy compiler, used at build time only.
 *
 *   compile --sets DIR -o OUT PROFILE...    write the image; the first profile has index 0
 *   check   --sets DIR PROFILE...           everything but the writing
 *   explain --sets DIR PROFILE...           the verdict for every system call, per filter
 *   dump IMAGE                              the header of an image
 *   learn   --sets DIR [-o OUT] -- CMD...   test builds: what CMD calls, as a profile
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "policy/compile.h"
#include "policy/image.h"
#include "policy/learn.h"
#include "policy/names.h"

struct options {
	const char *sets;
	const char *output;
	const char *const *file;
	char *const *command; /* the same words, for an exec */
	size_t n_files;
};

static void hash_bytes(const void *data, size_t size, uint8_t ret_hash[32])
{
	/* Fails only for lengths that are not ours. */
	int r = crypto_generichash(ret_hash, 32, data, size, NULL, 0);

	ASSERT(r == 0);
}

static int load(const struct options *options, struct compile **ret_compile, struct err *err)
{
	AUTO(compile_free) struct compile *compile = NULL;
	int r;

	r = compile_new(options->sets, &compile, err);
	for (size_t i = 0; r == 0 && i < options->n_files; i++)
		r = compile_add(compile, options->file[i], err);
	if (r < 0)
		return r;
	*ret_compile = TAKE_PTR(compile);
	return 0;
}

/* Write beside the target and rename: a broken build never leaves half an image. */
static int write_output(const char *path, const struct buf *image, struct err *err)
{
	char temporary[4096];
	AUTO_CLOSE int fd = -1;
	int r;

	r = str_format(temporary, sizeof(temporary), "%s.new", path);
	if (r < 0)
		return err_fail(err, r, "write", "the path is too long");
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_fail(err, -errno, "write", "open %s", temporary);
	r = io_write_all(fd, image->data, image->size);
	if (r < 0)
		return err_fail(err, r, "write", "%s", temporary);
	if (rename(temporary, path) < 0)
		return err_fail(err, -errno, "write", "rename to %s", path);
	return 0;
}

static int run_compile(const struct options *options, struct err *err)
{
	AUTO(compile_free) struct compile *compile = NULL;
	struct buf image = BUF_NULL(COMPILE_IMAGE_MAX_BYTES);
	int r;

	if (!options->output)
		return err_fail(err, -EINVAL, "usage", "compile needs -o OUT");
	r = load(options, &compile, err);
	if (r == 0)
		r = compile_finish(compile, err);
	if (r == 0)
		r = compile_image(compile, hash_bytes, &image, err);
	if (r == 0)
		r = write_output(options->output, &image, err);
	buf_done(&image);
	return r;
}

static int run_check(const struct options *options, struct err *err)
{
	AUTO(compile_free) struct compile *compile = NULL;
	int r;

	r = load(options, &compile, err);
	if (r == 0)
		r = compile_finish(compile, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < compile->n_units; i++) {
		const struct compile_unit *unit = &compile->unit[i];

		for (enum policy_filter j = 0; j < POLICY_FILTER_MAX_; j++) {
			if (unit->program[j])
				printf("%-16s %-8s %4zu instructions, %zu cases, longest way %zu\n",
				       unit->profile->name, profile_filter_name(j),
				       unit->n_instructions[j], unit->report[j].n_cases,
				       unit->report[j].n_executed_max);
		}
	}
	return 0;
}

/* The end of a line: why commands have it, if it is allowed and sensitive. */
static void explain_need(const struct resolve_call *call, struct profile_verdict verdict)
{
	if (verdict.action == PROFILE_ALLOW && call->needed_by[0] != '\0')
		printf(", needed by %s", call->needed_by);
	printf("\n");
}

static void explain_call(const struct resolve_filter *filter, int number, const char *name)
{
	const struct resolve_call *call = &filter->call[number];

	if (!call->conditional) {
		struct profile_verdict verdict = call->present ? call->verdict : filter->otherwise;

		printf("  %3d %-24s %s", number, name, profile_verdict_text(verdict));
		explain_need(call, verdict);
		return;
	}
	for (size_t i = 0; i < filter->n_matches; i++) {
		const struct resolve_match *match = &filter->match[i];

		if (match->number != number)
			continue;
		printf("  %3d %-24s %s if", number, name, profile_verdict_text(call->verdict));
		for (size_t j = 0; j < match->n_conditions; j++)
			printf("%s arg%u & 0x%x == 0x%x", j > 0 ? " and" : "",
			       match->condition[j].arg, match->condition[j].mask,
			       match->condition[j].value);
		explain_need(call, call->verdict);
	}
	printf("  %3d %-24s %s else", number, name, profile_verdict_text(call->otherwise));
	explain_need(call, call->otherwise);
}

static int run_explain(const struct options *options, struct err *err)
{
	AUTO(compile_free) struct compile *compile = NULL;
	int r;

	r = load(options, &compile, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < compile->n_units; i++) {
		const struct compile_unit *unit = &compile->unit[i];

		for (enum policy_filter j = 0; j < POLICY_FILTER_MAX_; j++) {
			const struct resolve_filter *filter = unit->resolved[j];

			if (!filter)
				continue;
			printf("%s %s: default %s; other architectures and x32 numbers: kill\n",
			       unit->profile->name, profile_filter_name(j),
			       profile_verdict_text(filter->otherwise));
			for (int number = 0; number < RESOLVE_MAX_NUMBER; number++) {
				char text[PROFILE_CALL_BYTES];
				const char *name = resolve_name(number, text);

				if (name || filter->call[number].present)
					explain_call(filter, number, name ? name : "(newer)");
			}
		}
	}
	return 0;
}

static int run_dump(const struct options *options, struct err *err)
{
	struct image image = IMAGE_NULL;
	AUTO_CLOSE int fd = -1;
	int r;

	if (options->n_files != 1)
		return err_fail(err, -EINVAL, "usage", "dump takes one IMAGE");
	fd = open(options->file[0], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_fail(err, -errno, "dump", "open %s", options->file[0]);
	r = image_open(fd, &image, err);
	if (r < 0)
		return r;
	printf("version %u, %u bytes, %u profiles\n", (unsigned int)image.header->version,
	       image.header->total_bytes, image.header->n_profiles);
	for (uint32_t i = 0; i < image.header->n_profiles; i++) {
		const struct policy_profile *profile = image_profile(&image, i);
		char hash[65];

		str_hex(hash, profile->hash, sizeof(profile->hash));
		printf("%u %s %s %s\n", i, profile->name,
		       profile->kind == POLICY_KIND_SESSION ? "session" : "worker", hash);
		for (enum policy_filter j = 0; j < POLICY_FILTER_MAX_; j++) {
			if (profile->filter[j].n != 0)
				printf("  %s: %u instructions at %u\n", profile_filter_name(j),
				       profile->filter[j].n, profile->filter[j].offset);
		}
	}
	image_close(&image);
	return 0;
}

#ifdef SANDBOXD_TEST_HOOKS

static int read_file(void *userdata, const char *name, char **ret_data, size_t *ret_size,
		     struct err *err)
{
	const struct options *options = userdata;
	char path[4096];
	AUTO_CLOSE int fd = -1;
	int r;

	r = str_format(path, sizeof(path), "%s/%s", options->sets, name);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_fail(err, -errno, "learn", "open %s", path);
	return io_read_file(fd, PROFILE_FILE_MAX_BYTES, ret_data, ret_size);
}

/* What every session refuses, and how. */
static int learn_sets(const struct options *options, struct learn *learn, struct err *err)
{
	static const char *const refused[] = {"shared", "dangerous"};
	struct options copy = *options;
	const struct profile_source source = {.read = read_file, .userdata = &copy};
	bool member[RESOLVE_MAX_NUMBER];
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		r = resolve_set(refused[i], &source, member, err);
		if (r < 0)
			return r;
		for (size_t j = 0; j < RESOLVE_MAX_NUMBER; j++)
			learn->refused[j] |= member[j];
	}
	return resolve_set("absent", &source, learn->absent, err);
}

static int run_learn(const struct options *options, struct err *err)
{
	static struct learn learn;
	FILE *file = stdout;
	int r;

	r = learn_sets(options, &learn, err);
	if (r == 0)
		r = learn_run(&learn, options->command, err);
	if (r < 0)
		return r;
	if (!WIFEXITED(learn.wait_status) || WEXITSTATUS(learn.wait_status) != 0)
		(void)fprintf(stderr, "sandbox-policyc: %s did not end with status 0\n",
			      options->file[0]);
	if (options->output)
		file = fopen(options->output, "we");
	if (!file)
		return err_fail(err, -errno, "learn", "open %s", options->output);
	r = learn_print(&learn, file);
	if (r < 0)
		(void)err_fail(err, r, "learn", "too many different arguments of one call");
	if (options->output && fclose(file) != 0 && r == 0)
		r = err_fail(err, -errno, "learn", "write %s", options->output);
	return r;
}

#endif

static const struct {
	const char *name;
	int (*run)(const struct options *options, struct err *err);
} commands[] = {
	{"compile", run_compile},
        {"check",   run_check  },
	{"explain", run_explain},
        {"dump",    run_dump   },
#ifdef SANDBOXD_TEST_HOOKS
	{"learn",   run_learn  },
#endif
};

static int parse_options(int argc, char *const argv[], struct options *ret_options)
{
	struct options options = {.sets = "."};
	int at = 2;

	while (at + 1 < argc && argv[at][0] == '-' && !str_equal(argv[at], "--")) {
		if (str_equal(argv[at], "--sets"))
			options.sets = argv[at + 1];
		else if (str_equal(argv[at], "-o"))
			options.output = argv[at + 1];
		else
			return -EINVAL;
		at += 2;
	}
	if (at < argc && str_equal(argv[at], "--"))
		at++;
	else if (at < argc && argv[at][0] == '-')
		return -EINVAL;
	if (at >= argc)
		return -EINVAL;
	options.file = (const char *const *)&argv[at];
	options.command = &argv[at];
	options.n_files = (size_t)(argc - at);
	*ret_options = options;
	return 0;
}

int main(int argc, char *argv[])
{
	struct err err = ERR_NULL;
	struct options options;

	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(commands); i++) {
		int r;

		if (!str_equal(commands[i].name, argv[1]))
			continue;
		if (parse_options(argc, argv, &options) < 0)
			break;
		if (sodium_init() < 0)
			return 1;
		r = commands[i].run(&options, &err);
		if (r < 0) {
			(void)fprintf(stderr, "sandbox-policyc: %s\n",
				      err.text[0] != '\0' ? err.text : "out of memory");
			return 1;
		}
		return fflush(stdout) == 0 ? 0 : 1;
	}
	(void)fprintf(stderr, "usage: sandbox-policyc compile --sets DIR -o OUT PROFILE...\n"
			      "       sandbox-policyc check|explain --sets DIR PROFILE...\n"
			      "       sandbox-policyc dump IMAGE\n");
	return 2;
}

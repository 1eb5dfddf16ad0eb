#include "policy/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <linux/filter.h>

#include "base/io.h"
#include "base/str.h"

#include "policy/image.h"
#include "policy/seccomp_gen.h"

int compile_new(const char *sets_dir, struct compile **ret_compile, struct err *err)
{
	AUTO(compile_free) struct compile *compile = calloc(1, sizeof(*compile));

	if (!compile)
		return -ENOMEM;
	compile->profiles_fd = -1;
	compile->sets_fd = open(sets_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (compile->sets_fd < 0)
		return err_fail(err, -errno, "policy", "open %s", sets_dir);
	*ret_compile = TAKE_PTR(compile);
	return 0;
}

static void unit_done(struct compile_unit *unit)
{
	unit->profile = profile_free(unit->profile);
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		unit->resolved[i] = resolve_filter_free(unit->resolved[i]);
		free(unit->program[i]);
		unit->program[i] = NULL;
	}
}

struct compile *compile_free(struct compile *compile)
{
	if (!compile)
		return NULL;
	for (size_t i = 0; i < compile->n_units; i++)
		unit_done(&compile->unit[i]);
	compile->sets_fd = fd_close(compile->sets_fd);
	compile->profiles_fd = fd_close(compile->profiles_fd);
	free(compile);
	return NULL;
}

/* profile_read: *.set from the directory of sets, everything else from that of the profile. */
static int read_file(void *userdata, const char *name, char **ret_data, size_t *ret_size,
		     struct err *err)
{
	const struct compile *compile = userdata;
	int dir_fd = str_has_suffix(name, ".set") ? compile->sets_fd : compile->profiles_fd;
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return err_fail(err, -errno, "policy", "open %s", name);
	r = io_read_file(fd, PROFILE_FILE_MAX_BYTES, ret_data, ret_size);
	return r < 0 ? err_fail(err, r, "policy", "read %s", name) : 0;
}

static void note_used(void *userdata, const char *set)
{
	struct compile *compile = userdata;

	lint_sets_add(&compile->used, set);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int open_directory(struct compile *compile, const char *path, struct err *err)
{
	size_t length = (size_t)(base_name(path) - path);
	char directory[4096] = ".";

	if (length > 0 && str_copy_n(directory, sizeof(directory), path, length) < 0)
		return err_fail(err, -ENAMETOOLONG, "policy", "the path of a profile is too long");
	compile->profiles_fd = fd_close(compile->profiles_fd);
	compile->profiles_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (compile->profiles_fd < 0)
		return err_fail(err, -errno, "policy", "open the directory of %s", path);
	return 0;
}

static int compile_filter(struct compile *compile, struct compile_unit *unit,
			  enum policy_filter which, const struct profile_source *source,
			  struct err *err)
{
	AUTO_FREE struct sock_filter *program = calloc(POLICY_MAX_BPF, sizeof(*program));
	size_t n = 0;
	int r;

	if (!program)
		return -ENOMEM;
	r = resolve_filter_new(&unit->profile->filter[which], source, note_used,
			       &unit->resolved[which], err);
	if (r < 0)
		return r;
	r = lint_filter(unit->profile, which, unit->resolved[which], compile->shared, err);
	if (r < 0)
		return r;
	r = lint_needs(unit->profile, which, unit->resolved[which], compile->sensitive, err);
	if (r < 0)
		return r;
	r = seccomp_gen_filter(unit->resolved[which], program, &n, err);
	if (r < 0)
		return r;
	r = equiv_check(unit->resolved[which], program, n, &unit->report[which], err);
	if (r < 0)
		return r;
	unit->program[which] = TAKE_PTR(program);
	unit->n_instructions[which] = n;
	return 0;
}

int compile_add(struct compile *compile, const char *path, struct err *err)
{
	struct profile_source source = {.read = read_file, .userdata = compile};
	struct compile_unit *unit = &compile->unit[compile->n_units];
	AUTO_FREE char *data = NULL;
	const char *name = base_name(path);
	size_t size = 0;
	int r;

	if (compile->n_units == POLICY_MAX_PROFILES)
		return err_fail(err, -E2BIG, "policy", "more than %d profiles",
				POLICY_MAX_PROFILES);
	r = open_directory(compile, path, err);
	if (r == 0)
		r = resolve_set(LINT_SHARED_SET, &source, compile->shared, err);
	if (r == 0)
		r = resolve_set(LINT_SENSITIVE_SET, &source, compile->sensitive, err);
	if (r == 0)
		r = read_file(compile, name, &data, &size, err);
	if (r == 0)
		r = profile_parse(name, data, size, &source, &unit->profile, err);
	if (r < 0)
		return r;
	compile->n_units++; /* from here on compile_free frees what the unit holds */
	for (size_t i = 0; i + 1 < compile->n_units; i++) {
		if (str_equal(compile->unit[i].profile->name, unit->profile->name))
			return line_fail(&unit->profile->where, err, "profile %s appears twice",
					 unit->profile->name);
	}
	for (enum policy_filter i = 0; i < POLICY_FILTER_MAX_; i++) {
		if (!unit->profile->filter[i].present)
			continue;
		r = compile_filter(compile, unit, i, &source, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int compile_finish(const struct compile *compile, struct err *err)
{
	return lint_unused_sets(compile->sets_fd, &compile->used, err);
}

/* The hash covers the profile with its hash zero and the bytes of its filters, in their order. */
static int hash_profile(const struct compile_unit *unit, compile_hash hash,
			struct policy_profile *profile)
{
	struct buf bytes = BUF_NULL(COMPILE_IMAGE_MAX_BYTES);
	int r = buf_append(&bytes, profile, sizeof(*profile));

	for (size_t i = 0; r == 0 && i < POLICY_FILTER_MAX_; i++) {
		if (unit->program[i])
			r = buf_append(&bytes, unit->program[i],
				       unit->n_instructions[i] * sizeof(struct sock_filter));
	}
	if (r == 0)
		hash(bytes.data, bytes.size, profile->hash);
	buf_done(&bytes);
	return r;
}

static int fill_profile(const struct compile_unit *unit, compile_hash hash, uint32_t *offset,
			struct policy_profile *profile)
{
	const struct profile *source = unit->profile;
	int r;

	r = str_copy(profile->name, sizeof(profile->name), source->name);
	if (r < 0)
		return r;
	profile->kind = source->kind;
	profile->proc = source->proc;
	profile->root = source->root;
	profile->limits = source->limits.value;
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++) {
		if (!unit->program[i])
			continue;
		profile->filter[i].offset = *offset;
		profile->filter[i].n = (uint32_t)unit->n_instructions[i];
		*offset += profile->filter[i].n * (uint32_t)sizeof(struct sock_filter);
	}
	return hash_profile(unit, hash, profile);
}

int compile_image(const struct compile *compile, compile_hash hash, struct buf *image,
		  struct err *err)
{
	struct policy_image_header header = {
		.magic = POLICY_IMAGE_MAGIC,
		.version = POLICY_IMAGE_VERSION,
		.header_bytes = sizeof(header),
		.n_profiles = (uint32_t)compile->n_units,
	};
	uint32_t offset = sizeof(header);
	int r = 0;

	for (size_t i = 0; r == 0 && i < compile->n_units; i++)
		r = fill_profile(&compile->unit[i], hash, &offset, &header.profile[i]);
	header.total_bytes = offset;
	if (r == 0)
		r = buf_append(image, &header, sizeof(header));
	for (size_t i = 0; r == 0 && i < compile->n_units; i++) {
		const struct compile_unit *unit = &compile->unit[i];

		for (size_t j = 0; r == 0 && j < POLICY_FILTER_MAX_; j++) {
			if (unit->program[j])
				r = buf_append(image, unit->program[j],
					       unit->n_instructions[j] *
						       sizeof(struct sock_filter));
		}
	}
	if (r < 0)
		return err_fail(err, r, "policy", "making of the image");
	/* What we write is what the reader will accept. */
	return image_check(image->data, image->size, err);
}

#include "supervisor/egress/names.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define RANGE_BITS 17
#define RANGE_SIZE (1u << RANGE_BITS)

void names_done(struct names *names)
{
	free(names->entry);
	*names = (struct names){0};
}

/*
 * FNV-1a: a session that searches for collisions finds them among its own names. Of two names that
 * collide the one asked for later has the next free address, so after a restart of this worker they
 * can have changed places: a client that kept an address over that, and asks for nothing, reaches
 * the other name of the same session, which its rules permit too, and fails there where server
 * name or Host are compared. Of 512 names, as many as there may be, one such pair is likely.
 */
static uint64_t hash(uint64_t value, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		value = (value ^ bytes[i]) * 0x100000001b3u;
	return value;
}

static const struct name_entry *find_offset(const struct names *names, uint32_t offset)
{
	for (uint32_t i = 0; i < names->n; i++)
		if (names->entry[i].offset == offset)
			return &names->entry[i];
	return NULL;
}

static const struct name_entry *find_name(const struct names *names, const char *name)
{
	for (uint32_t i = 0; i < names->n; i++)
		if (strcmp(names->entry[i].name, name) == 0)
			return &names->entry[i];
	return NULL;
}

bool names_has(const struct names *names, const char *name)
{
	return find_name(names, name) != NULL;
}

static void put_address(uint32_t offset, uint8_t ret_address[4])
{
	ret_address[0] = 198;
	ret_address[1] = (uint8_t)(18 + (offset >> 16));
	ret_address[2] = (uint8_t)(offset >> 8);
	ret_address[3] = (uint8_t)offset;
}

static int grow(struct names *names)
{
	uint32_t n = names->allocated ? names->allocated * 2 : 16;
	struct name_entry *entry = reallocarray(names->entry, n, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	names->entry = entry;
	names->allocated = n;
	return 0;
}

int names_add(struct names *names, const struct id *session, const char *name,
	      uint8_t ret_address[4])
{
	const struct name_entry *known = find_name(names, name);
	uint32_t max = names->max ? names->max : NAMES_DEFAULT_MAX;
	uint64_t value;
	uint32_t offset;
	int r;

	if (known) {
		put_address(known->offset, ret_address);
		return 0;
	}
	if (names->n >= (max < NAMES_MAX ? max : NAMES_MAX))
		return -ENOSPC;
	if (names->n == names->allocated) {
		r = grow(names);
		if (r < 0)
			return r;
	}
	value = hash(hash(0xcbf29ce484222325u, session->bytes, ID_BYTES), name, strlen(name));
	offset = (uint32_t)(value ^ value >> 32) % RANGE_SIZE;
	while (offset == 0 || find_offset(names, offset))
		offset = (offset + 1) % RANGE_SIZE;
	names->entry[names->n].offset = offset;
	memcpy(names->entry[names->n].name, name, strlen(name) + 1);
	names->n++;
	put_address(offset, ret_address);
	return 0;
}

bool names_is_synthetic(const struct egress_address *address)
{
	return address->family == AF_INET && address->bytes[0] == 198 &&
	       (address->bytes[1] & 0xfe) == 18;
}

const char *names_find(const struct names *names, const struct egress_address *address)
{
	const struct name_entry *entry;

	if (!names_is_synthetic(address))
		return NULL;
	entry = find_offset(names, (uint32_t)(address->bytes[1] & 1) << 16 |
					   (uint32_t)address->bytes[2] << 8 | address->bytes[3]);
	return entry ? entry->name : NULL;
}

int names_check_below(struct names *names, const char *name, const char *suffix, usec_t now)
{
	size_t below = strlen(name) - strlen(suffix) - 1;
	uint32_t n_labels = 1;
	uint64_t back;

	for (size_t i = 0; i < below; i++)
		n_labels += name[i] == '.';
	if (below > NAMES_BELOW_MAX_BYTES || n_labels > NAMES_BELOW_MAX_LABELS)
		return -EMSGSIZE;
	back = (now - names->below_since) / NAMES_BELOW_EVERY;
	names->n_below -= back < names->n_below ? (uint32_t)back : names->n_below;
	names->below_since = names->n_below ? names->below_since + back * NAMES_BELOW_EVERY : now;
	if (names->n_below >= NAMES_BELOW_BURST)
		return -EDQUOT;
	names->n_below++;
	return 0;
}

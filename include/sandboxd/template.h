/*
 * Templates: unpacked root file systems that sessions can have instead of the host's /usr.
 *
 *   STATE_DIR/templates/            root's alone, 0700
 *   STATE_DIR/templates/NAME/record struct template_record, root's, 0600
 *   STATE_DIR/templates/NAME/root/  what was unpacked
 *
 * A folder with a valid name is finished: it gets its name when all in it is on the disk. Names
 * that begin with a dot are imports under way, or what is being removed. In `root` are regular
 * files, folders, symbolic links and hard links, no setuid or setgid bit, no xattr but user.*; what
 * the links say is the image's. Nothing in it is ever changed again.
 *
 * Owners: TEMPLATE_OWNERS_PLAIN is an id of the image as it is, 0 to TEMPLATE_ID_LAST, behind a
 * folder that only root may enter. So the user namespace of a session, whose ids are the same,
 * maps the mount. Where the file system cannot be mapped at all, id_base is what was added to each;
 * then they are nobody's inside.
 *
 * Who uses one holds a read lock of its open file description on one byte of `record`, of a number
 * that no other user has (template_hold in base/template.h). Who removes one needs a write lock on
 * the whole file, takes its name away, then `record`, and gives up the lock last.
 */
#pragma once

#include <stdint.h>

#define TEMPLATES_FOLDER     "templates"
#define TEMPLATE_ROOT        "root"
#define TEMPLATE_RECORD_FILE "record"
#define TEMPLATE_NAME_BYTES  64 /* with the NUL: [a-z0-9][a-z0-9._-]{0,62} */
/* The host's /usr: always there, never a folder. */
#define TEMPLATE_BASE        "base"

#define TEMPLATE_OWNERS_PLAIN 0u
#define TEMPLATE_ID_LAST      65533u /* higher ones of an image become this one */
/* The block of ids that unpacks, and owns what it unpacks where no mount can be mapped: the one
 * behind those that sessions get (supervisor/idblock.h). */
#define TEMPLATE_ID_BASE      0x6fff0000u

#define TEMPLATE_MAGIC        0x4c504d54u
#define TEMPLATE_VERSION      1
#define TEMPLATE_DIGEST_BYTES 32

struct template_record {
	uint32_t magic; /* the first three never move */
	uint16_t version;
	uint16_t size;
	uint32_t id_base; /* TEMPLATE_OWNERS_PLAIN or TEMPLATE_ID_BASE */
	uint32_t reserved;
	uint64_t n_bytes;   /* sizes of regular files, each once */
	uint64_t n_inodes;  /* with `root` itself: at least 1 */
	uint64_t created_s; /* CLOCK_REALTIME */
	/* Of the tar archive's bytes, or of the image's manifest; zero for a folder. */
	uint8_t source_sha256[TEMPLATE_DIGEST_BYTES];
};
_Static_assert(sizeof(struct template_record) == 72, "a new layout is a new TEMPLATE_VERSION");

/*
 * sandbox-template: an image unpacked into a folder, or a folder emptied.
 *
 * usage: sandbox-template unpack MAX_BYTES MAX_INODES PLATFORM REF
 *        sandbox-template remove
 *
 * sandboxd-template starts it, for one job, in namespaces of its own with an empty root: all that
 * it reaches is the folder TEMPLATE_FD_TREE, in which it makes `root`, and the source, a tar
 * archive or a folder. It is root of a user namespace and has what a chown there needs, and nothing
 * outside. Its one struct template_report is the last thing it writes; without it the job failed.
 * A reader treats every byte of it, and all that was made, as hostile.
 *
 * PLATFORM is OS/ARCHITECTURE[/VARIANT]; REF a tag of the image's index, or empty.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/template.h"

#define TEMPLATE_FD_SOURCE 0
#define TEMPLATE_FD_REPORT 1 /* 2 is standard error */
#define TEMPLATE_FD_TREE   3
#define TEMPLATE_FD_POLICY 4

#define TEMPLATE_REPORT_MAGIC 0x54504c52u
#define TEMPLATE_ENTRY_BYTES  256
#define TEMPLATE_PATH_MAX     4095 /* of a name in an image */

enum template_error {
	TEMPLATE_E_NONE,
	TEMPLATE_E_SYSTEM,       /* error_number says what */
	TEMPLATE_E_BYTES,        /* more than MAX_BYTES */
	TEMPLATE_E_INODES,       /* more than MAX_INODES, or many times as many entries */
	TEMPLATE_E_NAME,         /* too long, absolute, or with a component that is no name */
	TEMPLATE_E_LINK_ON_WAY,  /* a folder of the path is a link or a file */
	TEMPLATE_E_HARD_LINK,    /* to what is no file of this image */
	TEMPLATE_E_FORMAT,       /* the stream is not what it says, or is cut off */
	TEMPLATE_E_EMPTY,        /* nothing is in it */
	TEMPLATE_E_TOP,          /* what must be a folder for a session is none */
	TEMPLATE_E_OCI,          /* a document of the image is not what the format asks for */
	TEMPLATE_E_OCI_MEDIA,    /* a layer of an unknown kind */
	TEMPLATE_E_OCI_PLATFORM, /* the image is not for this platform */
	TEMPLATE_E_OCI_REF,      /* no image has this tag */
	TEMPLATE_E_OCI_SEVERAL,  /* more than one image is left to choose from */
	TEMPLATE_E_OCI_BLOB,     /* it is not there */
	TEMPLATE_E_OCI_DIGEST,   /* its bytes are not those that were named, or not as many */
	TEMPLATE_E_MAX_,
};

struct template_report {
	uint32_t magic;
	uint32_t error;       /* enum template_error */
	int32_t error_number; /* positive; 0 where none applies */
	uint32_t has_shell;   /* 1: something is at bin/sh or usr/bin/sh */
	uint64_t n_bytes;     /* as struct template_record has them */
	uint64_t n_inodes;
	uint64_t n_devices; /* left out: with them fifos, sockets, and what is unknown */
	uint64_t n_modes;   /* setuid and setgid bits that were taken off */
	uint64_t n_xattrs;  /* left out: all but user.* */
	uint64_t n_tops;    /* links and files that became the folder which a session needs */
	uint64_t n_layers;  /* 0: no image of layers */
	uint8_t source_sha256[TEMPLATE_DIGEST_BYTES];
	char name[TEMPLATE_ENTRY_BYTES]; /* where it failed, cut; no NUL by promise */
};
_Static_assert(sizeof(struct template_report) == 360, "wire");

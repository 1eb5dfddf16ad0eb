/*
 * Pure: the head of an answer that a stream follows, byte by byte. Nothing of it counts but that it
 * begins with "HTTP/1.1 101 " or 200, and where it ends.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#define ATTACH_HEAD_MAX   8192
#define ATTACH_FIRST_LINE 16

/* A new one: all zero. */
struct attach_head {
	char line[ATTACH_FIRST_LINE]; /* the beginning of the first one */
	size_t n;                     /* bytes so far */
	unsigned int end;             /* how much of the empty line is there */
};

/* 1: the head is complete and says that the stream follows; 0: more is needed; -EPROTO. *ret_taken:
 * bytes of the head. */
MUST_USE int attach_head_take(struct attach_head *head, const char *data, size_t size,
			      size_t *ret_taken);

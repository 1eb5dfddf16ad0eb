/*
 * Answers of an object store: the text of each element, at its end. Attributes and what is beside
 * them count for nothing.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#define XML_TEXT_BYTES 1200 /* of one element; what is longer is cut */

/* name: without its name space. text: what was directly in it, "" where that was none. */
typedef void (*xml_seen)(void *userdata, const char *name, const char *text);

/* 0; -EBADMSG: it is no XML; -ENOMEM. What was seen before stays seen. */
MUST_USE int xml_read(const void *data, size_t size, xml_seen seen, void *userdata);

/*
 * Parse and check the documents of one file.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct report;

#define DOCUMENT_MAX_DEPTH     64
#define DOCUMENT_MAX_ALIASES   1000
#define DOCUMENT_MAX_EVENTS    200000
#define DOCUMENT_MAX_DOCUMENTS 256

/*
 * Check `text` and report every problem found. *ret_n_documents: documents that were parsed to
 * their end. 0, or -ENOMEM.
 */
MUST_USE int document_check(struct report *report, const uint8_t *text, size_t size,
			    uint32_t *ret_n_documents);

/*
 * Intrusive doubly linked list. An entry that is in no list points at itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next;
	struct list *prev;
};

#define LIST_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_append(struct list *head, struct list *entry)
{
	entry->prev = head->prev;
	entry->next = head;
	head->prev->next = entry;
	head->prev = entry;
}

static inline void list_prepend(struct list *head, struct list *entry)
{
	list_append(head->next, entry);
}

static inline void list_remove(struct list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	list_init(entry);
}

#define LIST_FOR_EACH(link, head)                                                                  \
	for (struct list *link = (head)->next; link != (head); link = link->next)
/* The entry may be removed inside the loop. */
#define LIST_FOR_EACH_SAFE(link, following, head)                                                  \
	for (struct list *link = (head)->next, *following = link->next; link != (head);            \
	     link = following, following = link->next)

#include "base/list.h"

#include "tests/lib/test.h"

struct item {
	int value;
	struct list link;
};

static int sum_in_order(const struct list *head)
{
	int sum = 0;

	LIST_FOR_EACH (link, head)
		sum = sum * 10 + LIST_ENTRY(link, struct item, link)->value;
	return sum;
}

static void test_list_append_prepend_order(void **state)
{
	struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
	struct list head;

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	list_append(&head, &items[1].link);
	list_append(&head, &items[2].link);
	list_prepend(&head, &items[0].link);
	assert_int_equal(sum_in_order(&head), 123);
}

static void test_list_remove_in_loop_and_twice(void **state)
{
	struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
	struct list head;

	(void)state;
	list_init(&head);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		list_append(&head, &items[i].link);
	LIST_FOR_EACH_SAFE (link, following, &head)
		if (LIST_ENTRY(link, struct item, link)->value != 2)
			list_remove(link);
	assert_int_equal(sum_in_order(&head), 2);
	list_remove(&items[0].link); /* in no list: harmless */
	list_remove(&items[1].link);
	assert_true(list_empty(&head));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_list_append_prepend_order),
	cmocka_unit_test(test_list_remove_in_loop_and_twice),
};
TEST_MAIN(tests)

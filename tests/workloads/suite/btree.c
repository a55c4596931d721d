/* SPDX-License-Identifier: Apache-2.0 */
/*
 * btree: a B+ tree of 64-bit keys; nine lookups for each insert, the lookups after Zipf's law
 * over what is there. --work: operations.
 *
 * A key is a permutation of its number and its value a hash of the key, so each lookup knows
 * what it must find. At the end the leaves are walked: keys ascend, none is missing.
 */
#include "suite.h"
#include "zipf.h"

#include <stdlib.h>
#include <string.h>

enum { FANOUT = 62, DEPTH_MAX = 12 };

struct node {
	uint32_t count;
	uint32_t leaf;
	uint64_t key[FANOUT];
	union {
		uint64_t value[FANOUT];
		struct node *child[FANOUT + 1];
	};
	struct node *next; /* of leaves */
};

struct tree {
	struct node *root, *pool;
	size_t used, capacity;
};

static struct node *new_node(struct tree *tree, bool leaf)
{
	struct node *node;

	if (tree->used == tree->capacity)
		return NULL;
	node = &tree->pool[tree->used++];
	node->leaf = leaf;
	return node;
}

/* The first place whose key is greater than `key` (an inner node's child to follow). */
static uint32_t upper(const struct node *node, uint64_t key)
{
	uint32_t low = 0, high = node->count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (node->key[middle] <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool find(const struct tree *tree, uint64_t key, uint64_t *value)
{
	const struct node *node = tree->root;
	uint32_t at;

	while (!node->leaf)
		node = node->child[upper(node, key)];
	at = upper(node, key);
	if (!at || node->key[at - 1] != key)
		return false;
	*value = node->value[at - 1];
	return true;
}

static void put(struct node *node, uint32_t at, uint64_t key, void *child, uint64_t value)
{
	uint32_t after = node->count - at;

	memmove(&node->key[at + 1], &node->key[at], after * sizeof(node->key[0]));
	node->key[at] = key;
	if (node->leaf) {
		memmove(&node->value[at + 1], &node->value[at], after * sizeof(uint64_t));
		node->value[at] = value;
	} else {
		memmove(&node->child[at + 2], &node->child[at + 1], after * sizeof(void *));
		node->child[at + 1] = child;
	}
	node->count++;
}

/* Halves a full node; returns the new right half and the key that separates them. */
static struct node *split(struct tree *tree, struct node *node, uint64_t *separator)
{
	struct node *right = new_node(tree, node->leaf);
	uint32_t left = FANOUT / 2, first = node->leaf ? left : left + 1;

	if (!right)
		return NULL;
	right->count = FANOUT - first;
	memcpy(right->key, &node->key[first], right->count * sizeof(node->key[0]));
	if (node->leaf) {
		memcpy(right->value, &node->value[first], right->count * sizeof(uint64_t));
		right->next = node->next;
		node->next = right;
	} else {
		memcpy(right->child, &node->child[first], (right->count + 1) * sizeof(void *));
	}
	*separator = node->key[left];
	node->count = left;
	return right;
}

/* False when the pool is used up. Keys must be new. */
static bool insert(struct tree *tree, uint64_t key, uint64_t value)
{
	struct node *path[DEPTH_MAX], *node = tree->root, *child = NULL;
	uint32_t depth = 0, at[DEPTH_MAX];

	for (; !node->leaf; node = node->child[at[depth++]]) {
		path[depth] = node;
		at[depth] = upper(node, key);
	}
	if (tree->capacity - tree->used < depth + 2ul)
		return false;
	for (uint32_t place = upper(node, key);; place = at[depth]) {
		struct node *half, *into = node;
		uint64_t separator = 0;

		if (node->count < FANOUT) {
			put(node, place, key, child, value);
			return true;
		}
		half = split(tree, node, &separator);
		if (!half)
			return false; /* cannot be: there was room for the whole path */
		/* The inner node's middle key goes up: places behind it belong to the half. */
		if (place > node->count) {
			into = half;
			place -= node->count + !node->leaf;
		}
		put(into, place, key, child, value);
		key = separator;
		child = half;
		if (!depth) {
			struct node *root = new_node(tree, false);

			root->child[0] = node;
			put(root, 0, key, child, 0);
			tree->root = root;
			return true;
		}
		node = path[--depth];
	}
}

static bool leaves_are_right(const struct tree *tree, uint64_t keys)
{
	const struct node *node = tree->root;
	uint64_t seen = 0, last = 0;

	while (!node->leaf)
		node = node->child[0];
	for (; node; node = node->next)
		for (uint32_t i = 0; i < node->count; i++, seen++) {
			if (seen && node->key[i] <= last)
				return false;
			last = node->key[i];
			if (node->value[i] != mix64(last))
				return false;
		}
	return seen == keys;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "btree", .size = 256ul << 20, .work = 2000000, .seed = 1};
	uint64_t keys = 0, state, wrong = 0, answer = 0, value = 0;
	struct tree tree = {0};
	struct zipf zipf;

	suite_options(&suite, argc, argv);
	tree.capacity = suite.size / sizeof(struct node);
	tree.pool = suite_alloc(&suite, tree.capacity * sizeof(struct node));
	tree.root = new_node(&tree, true);
	/* Random inserts leave nodes about two thirds full; a tenth of the pool is for later. */
	while (tree.used < tree.capacity * 9 / 10 && insert(&tree, mix64(keys), mix64(mix64(keys))))
		keys++;
	zipf_make(&zipf, keys, 0.99);
	state = mix64(suite.seed);
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		if (i % 10 == 9 && insert(&tree, mix64(keys), mix64(mix64(keys)))) {
			keys++;
			continue;
		}
		if (!find(&tree, mix64(zipf_item(&zipf, &state)), &value))
			wrong++;
		answer += value;
	}
	suite_stop();
	suite_spoil(&suite, tree.pool, tree.used * sizeof(struct node));
	return suite_end(&suite, suite.work, !wrong && leaves_are_right(&tree, keys), answer);
}

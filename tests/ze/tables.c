/* SPDX-License-Identifier: MIT */

/*
 * A loader without the rest: what the proxy hands out, beside what the driver
 * does by itself.
 *
 *	tables PROXY DRIVER VERSION
 *
 * A line for each function that fills a table: NAME, then "none", "same" (the
 * driver's own), or, of one that is the proxy's, the result, how many pointers
 * there are, and which of them are others than the driver's.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include "front/levelzero/names.h"

#define N_SLOTS 512 /* more than any table has */

typedef ze_result_t get_fn(ze_api_version_t version, void *table);

static const char *const names[] = {
#define NAME(name) #name,
	KI_ZE_NAMES(NAME) KI_ZE_NEWER_NAMES(NAME)
#undef NAME
};

static void tell_table(get_fn *ours, get_fn *theirs, ze_api_version_t version)
{
	static void *our_table[N_SLOTS], *their_table[N_SLOTS];
	ze_result_t result;
	size_t i, n = 0;

	memset(our_table, 0, sizeof(our_table));
	memset(their_table, 0, sizeof(their_table));
	result = ours(version, our_table);
	if (result != theirs(version, their_table))
		printf(" another result");
	for (i = 0; i < N_SLOTS; i++)
		n += our_table[i] != NULL;
	printf(" %x %zu:", result, n);
	for (i = 0; i < N_SLOTS; i++)
		if (our_table[i] != their_table[i])
			printf(" %zu", i);
}

int main(int argc, char **argv)
{
	void *proxy, *driver, *ours, *theirs;
	size_t i;

	if (argc != 4)
		return 2;
	proxy = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
	driver = dlopen(argv[2], RTLD_LAZY | RTLD_LOCAL);
	if (!proxy || !driver) {
		printf("%s\n", dlerror());
		return 3;
	}
	printf("secure %d\n", getauxval(AT_SECURE) != 0);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ours = dlsym(proxy, names[i]);
		theirs = dlsym(driver, names[i]);
		printf("%s", names[i]);
		if (ours == theirs)
			printf(ours ? " same" : " none");
		else
			tell_table(
				(get_fn *)ours, (get_fn *)theirs,
				(ze_api_version_t)strtoul(argv[3], NULL, 16));
		printf("\n");
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */

/* A program for the setups of docs/remote.md: it wants values FIRST to FIRST + N - 1
   (node.h).  --drain: until what this machine has to give is given. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

int main(int argc, char **argv)
{
	_Atomic unsigned n_builds = 0;
	unsigned n_remote = 0, first, n;
	struct kiln *kiln;

	if (argc == 2 && !strcmp(argv[1], "--drain"))
		return node_drain_here();
	if (argc != 3)
		return 2;
	first = (unsigned)strtoul(argv[1], NULL, 10);
	n = (unsigned)strtoul(argv[2], NULL, 10);
	kiln = node_open_kiln(0);
	if (!kiln)
		return 1;
	for (unsigned i = first; i < first + n; i++) {
		struct node_use use = { .size = 5000, .n_builds = &n_builds };

		if (node_use(kiln, i, &use))
			return 1;
		n_remote += use.source == KILN_FROM_REMOTE;
	}
	kiln_close(kiln);
	printf("built %u, from the remote %u\n", n_builds, n_remote);
	return 0;
}

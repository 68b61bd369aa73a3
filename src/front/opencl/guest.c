/* SPDX-License-Identifier: MIT */

/* The kiln of this process (front/guest.h), with what identifies its OpenCL
   platforms beside it. */

#include "front/opencl/layer.h"

static struct ki_cl_guest guest; /* fixed once the kiln is open */

static int make_ready(const struct ki_guest *opened)
{
	guest.identities = ki_cl_identities_new(&ki_cl_next);
	if (!guest.identities)
		return -1;
	guest.base = opened;
	guest.kiln = opened->kiln;
	guest.spool = opened->spool;
	guest.name_space = opened->name_space;
	return 0;
}

const struct ki_cl_guest *ki_cl_guest(void)
{
	return !ki_cl_is_child() && ki_guest(make_ready) ? &guest : NULL;
}

/* SPDX-License-Identifier: MIT */

/*
 * A build as the caller asks for it, and the key that says all it depends on.
 * Not every build has one: a driver that nobody has looked at, an include that
 * cannot be found, the time of day in a source.  Those are built each time.
 */

#include <stdlib.h>
#include <string.h>

#include "front/cl/cl.h"

static int is_valid(const struct kiln_cl_build *build)
{
	return build &&
	       (build->source != NULL) + (build->il != NULL) +
			       (build->binary != NULL) ==
		       1 &&
	       (!build->devices || build->n_devices) &&
	       (!build->n_constants ||
		(build->il && build->constant_ids && build->constant_sizes &&
		 build->constants));
}

static int has_device(const struct kiln_cl *cl, cl_device_id device)
{
	for (cl_uint i = 0; i < cl->n_devices; i++)
		if (cl->devices[i] == device)
			return 1;
	return 0;
}

/* NULL: no memory, or more than is cached. */
static struct ki_cl_recipe *recipe_of(const struct kiln_cl_build *build)
{
	struct ki_cl_constant *constants =
		calloc(build->n_constants + 1, sizeof(*constants));
	struct ki_cl_source *source =
		build->il ? ki_cl_source_new_il(build->il, build->il_size)
			  : ki_cl_source_new(1, &build->source, NULL);
	struct ki_cl_recipe *recipe = NULL;

	for (size_t i = 0; i < build->n_constants && constants; i++)
		constants[i] = (struct ki_cl_constant){
			.id = build->constant_ids[i],
			.size = build->constant_sizes[i],
			.value = build->constants[i],
		};
	if (constants && source && build->n_constants <= KI_CL_CONSTANTS_MAX)
		recipe = ki_cl_recipe_build(source, constants,
					    (cl_uint)build->n_constants,
					    build->options);
	ki_cl_source_unref(source);
	free(constants);
	return recipe;
}

/* NULL: there is none. */
static struct kiln_key *key_of(const struct ki_cl_order *order,
			       uint64_t *out_stamp)
{
	struct ki_cl_recipe *recipe = recipe_of(order->build);
	struct ki_cl_build build = {
		.platform = order->cl->platform,
		.devices = order->devices,
		.n_devices = order->n_devices,
		.recipe = recipe,
		.out_stamp = out_stamp,
	};
	enum kiln_counter reason;
	struct kiln_key *key;

	if (!recipe || ki_cl_key(order->cl->identities, &build, &key, &reason))
		key = NULL;
	ki_cl_recipe_unref(recipe);
	return key;
}

enum kiln_status ki_cl_order_init(struct ki_cl_order *order, struct kiln_cl *cl,
				  const struct kiln_cl_build *build)
{
	if (!is_valid(build))
		return KILN_E_INVALID;
	*order = (struct ki_cl_order){
		.cl = cl,
		.build = build,
		.devices = build->devices ? build->devices : cl->devices,
		.n_devices = build->devices ? build->n_devices : cl->n_devices,
	};
	for (cl_uint i = 0; i < order->n_devices; i++)
		if (!has_device(cl, order->devices[i]))
			return KILN_E_INVALID;
	if (!build->binary)
		order->key = key_of(order, &order->stamp);
	return KILN_OK;
}

void ki_cl_order_fini(struct ki_cl_order *order)
{
	kiln_key_free(order->key);
}

int ki_cl_order_is_current(const struct ki_cl_order *order)
{
	uint64_t stamp = 0;
	struct kiln_key *key = key_of(order, &stamp);
	int is_same = key && stamp == order->stamp &&
		      !memcmp(kiln_key_digest(key), kiln_key_digest(order->key),
			      KILN_DIGEST_BYTES);

	kiln_key_free(key);
	return is_same;
}

/* SPDX-License-Identifier: MIT */

/*
 * A build as the caller asks for it, and the key that says all it depends on.
 *
 *	a store's		the layer's own key
 *	for this process	a driver that nobody has looked at, another layer
 *				below; also of a binary that the caller brings
 *	none			an include that cannot be found, the time of day in
 *				a source: built each time
 */

#include <stdlib.h>
#include <string.h>

#include "front/cl/cl.h"

#define KIND_GIVEN "opencl binary 1"

/* ---- What is asked for ------------------------------------------------------- */

/* As kiln_open() takes its options: what a newer caller may have behind must be
   zero. */
static int take(const struct kiln_cl_build *given, struct kiln_cl_build *out)
{
	const unsigned char *bytes = (const unsigned char *)given;
	size_t size = sizeof(*out);

	if (!given || given->size < sizeof(given->size))
		return -1;
	for (size_t i = size; i < given->size; i++)
		if (bytes[i])
			return -1;
	memset(out, 0, size);
	memcpy(out, given, given->size < size ? given->size : size);
	return 0;
}

static int is_valid(const struct kiln_cl_build *build)
{
	return (build->source != NULL) + (build->il != NULL) +
			       (build->binary != NULL) ==
		       1 &&
	       !build->devices == !build->n_devices &&
	       (!build->n_constants ||
		(build->il && build->constant_ids && build->constant_sizes &&
		 build->constants));
}

static int has(const cl_device_id *devices, cl_uint n, cl_device_id device)
{
	for (cl_uint i = 0; i < n; i++)
		if (devices[i] == device)
			return 1;
	return 0;
}

/* As the layer has them: a key does not depend on how they are called for. */
static enum kiln_status take_devices(struct ki_cl_order *order)
{
	const struct kiln_cl *cl = order->cl;
	const struct kiln_cl_build *build = &order->build;

	for (cl_uint i = 0; i < build->n_devices; i++)
		if (!has(cl->devices, cl->n_devices, build->devices[i]))
			return KILN_E_INVALID;
	order->devices = calloc(cl->n_devices, sizeof(*order->devices));
	if (!order->devices)
		return KILN_E_NO_MEMORY;
	for (cl_uint i = 0; i < cl->n_devices; i++)
		if (!build->devices ||
		    has(build->devices, build->n_devices, cl->devices[i]))
			order->devices[order->n_devices++] = cl->devices[i];
	return KILN_OK;
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

/* ---- Keys ------------------------------------------------------------------ */

static struct ki_cl_build build_of(const struct kiln_cl *cl,
				   const struct ki_cl_recipe *recipe,
				   const cl_device_id *devices,
				   cl_uint n_devices, uint64_t *out_stamp)
{
	return (struct ki_cl_build){
		.platform = cl->platform,
		.devices = devices,
		.n_devices = n_devices,
		.recipe = recipe,
		.out_stamp = out_stamp,
	};
}

/* The reasons that an identity is wanting for. */
static int is_of_identity(enum kiln_counter reason)
{
	return reason == KILN_COUNT_MISS_UNSUPPORTED ||
	       reason == KILN_COUNT_MISS_UNKNOWN_LAYER;
}

static void take_key(struct ki_cl_order *order)
{
	struct ki_cl_identities *identities = order->cl->identities;
	struct ki_cl_build build =
		build_of(order->cl, order->recipe, order->devices,
			 order->n_devices, &order->stamp);

	order->reason = KILN_COUNT_MISS_UNSUPPORTED;
	if (!order->recipe)
		return;
	order->is_stored =
		!ki_cl_key(identities, &build, &order->key, &order->reason);
	if (!order->is_stored && is_of_identity(order->reason))
		(void)ki_cl_passing_key(identities, &build, &order->key);
}

/* NULL without memory. */
static struct kiln_key *key_of_given(const struct kiln_cl_build *build)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", KIND_GIVEN);
	if (build->options)
		kiln_key_add_string(key, "options", build->options);
	else
		kiln_key_add_absent(key, "options");
	kiln_key_add_digest(key, "binary", build->binary, build->binary_size);
	if (!kiln_key_finish(key))
		return key;
	kiln_key_free(key);
	return NULL;
}

enum kiln_status ki_cl_order_init(struct ki_cl_order *order, struct kiln_cl *cl,
				  const struct kiln_cl_build *build)
{
	enum kiln_status status;

	*order = (struct ki_cl_order){ .cl = cl };
	if (take(build, &order->build) || !is_valid(&order->build))
		return KILN_E_INVALID;
	status = take_devices(order);
	if (status) {
		ki_cl_order_fini(order);
		return status;
	}
	if (order->build.binary) {
		order->key = key_of_given(&order->build);
	} else {
		order->recipe = recipe_of(&order->build);
		take_key(order);
	}
	return KILN_OK;
}

void ki_cl_order_fini(struct ki_cl_order *order)
{
	kiln_key_free(order->key);
	ki_cl_recipe_unref(order->recipe);
	free(order->devices);
}

int ki_cl_is_current(const struct kiln_cl *cl,
		     const struct ki_cl_recipe *recipe,
		     const cl_device_id *devices, cl_uint n_devices,
		     const struct kiln_key *key, uint64_t stamp)
{
	uint64_t stamp_now = 0;
	struct ki_cl_build build =
		build_of(cl, recipe, devices, n_devices, &stamp_now);
	enum kiln_counter unused;
	struct kiln_key *now;
	int is_same;

	if (ki_cl_key(cl->identities, &build, &now, &unused))
		return 0;
	is_same = stamp_now == stamp &&
		  !memcmp(kiln_key_digest(now), kiln_key_digest(key),
			  KILN_DIGEST_BYTES);
	kiln_key_free(now);
	return is_same;
}

/* SPDX-License-Identifier: MIT */

/*
 * How the loaders find the layer: Debian's ocl-icd by clInitLayer, Khronos'
 * own by clInitLayerWithProperties and clDeinitLayer.  They may not be called
 * from here.  What this layer leaves alone is NULL in its table, and the
 * loaders then call the next one directly.
 *
 * In a set-uid program the whole table is NULL, and so is a second one for a
 * loader that was told of this layer twice.
 */

#include "front/opencl/layer.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include <CL/cl_layer.h>

#define PUBLIC	   __attribute__((visibility("default")))
#define LAYER_NAME "kiln"

cl_icd_dispatch ki_cl_next;
static cl_icd_dispatch table;
static uint64_t generation; /* of forks, when the layer was loaded */

PUBLIC cl_int CL_API_CALL clInitLayerWithProperties(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret,
	const void *properties);
PUBLIC cl_int CL_API_CALL clDeinitLayer(void);

static const struct call {
	const char *name;
	size_t place; /* in the tables */
	void *own;
} calls[] = {
#define CALL(name)                                                             \
	{ #name, offsetof(cl_icd_dispatch, name), (void *)ki_##name },
	KI_CL_CALLS(CALL)
#undef CALL
};
#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

int ki_cl_is_child(void)
{
	return ki_fork_counter != generation;
}

/* fork() finds no lock of ours taken, so a child can go on translating. */
static void before_fork(void)
{
	ki_guest_hold();
	pthread_mutex_lock(&ki_cl_lock.mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&ki_cl_lock.mutex);
	ki_guest_let_go();
}

static void after_fork_in_child(void)
{
	pthread_mutex_unlock(&ki_cl_lock.mutex);
	ki_guest_let_go();
	ki_cl_background_forget();
}

static void prepare(void)
{
	ki_cl_background_init();
	generation = ki_fork_generation();
	/* Asked for now it is given at once; once a driver has its threads, the
	   library would wait 11 ms for it. */
	(void)ki_process_barrier_prepare();
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Only what the next layer has can be taken over. */
static void *next_of(const struct call *call)
{
	void *next;

	memcpy(&next, (char *)&ki_cl_next + call->place, sizeof(next));
	return next;
}

static void fill_table(void)
{
	size_t i;

	for (i = 0; i < N_CALLS; i++)
		if (next_of(&calls[i]))
			memcpy((char *)&table + calls[i].place, &calls[i].own,
			       sizeof(calls[i].own));
}

/* Named by the system and by OPENCL_LAYERS the layer is loaded once, and asked
   twice: on top of itself it would call itself for ever. */
static int is_below(const cl_icd_dispatch *next, cl_uint n)
{
	void *call;
	size_t i;

	for (i = 0; i < N_CALLS; i++) {
		if (calls[i].place >= n * sizeof(void *))
			continue;
		memcpy(&call, (const char *)next + calls[i].place,
		       sizeof(call));
		if (call == calls[i].own)
			return 1;
	}
	return 0;
}

void *ki_cl_own_call(const char *name)
{
	size_t i;

	for (i = 0; i < N_CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return next_of(&calls[i]) ? calls[i].own : NULL;
	return NULL;
}

PUBLIC cl_int CL_API_CALL clGetLayerInfo(cl_layer_info param_name,
					 size_t param_value_size,
					 void *param_value,
					 size_t *param_value_size_ret)
{
	static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
	const void *answer = &version;
	size_t size = sizeof(version);

	if (param_name == CL_LAYER_NAME) {
		answer = LAYER_NAME;
		size = sizeof(LAYER_NAME);
	} else if (param_name != CL_LAYER_API_VERSION) {
		return CL_INVALID_VALUE;
	}
	if (param_value && param_value_size < size)
		return CL_INVALID_VALUE;
	if (param_value)
		memcpy(param_value, answer, size);
	if (param_value_size_ret)
		*param_value_size_ret = size;
	return CL_SUCCESS;
}

PUBLIC cl_int CL_API_CALL clInitLayer(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const cl_icd_dispatch nothing;
	cl_uint n = sizeof(table) / sizeof(void *);

	if (!target_dispatch || !num_entries_ret || !layer_dispatch_ret)
		return CL_INVALID_VALUE;
	if (n > num_entries)
		n = num_entries;
	*num_entries_ret = n;
	*layer_dispatch_ret = &nothing;
	if (is_below(target_dispatch, n))
		return CL_SUCCESS;
	if (!ki_process_is_secure()) {
		pthread_once(&once, prepare);
		memcpy(&ki_cl_next, target_dispatch, n * sizeof(void *));
		fill_table();
	}
	*layer_dispatch_ret = &table;
	return CL_SUCCESS;
}

/* There are no properties yet, and unknown ones are no reason to refuse. */
PUBLIC cl_int CL_API_CALL clInitLayerWithProperties(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret,
	const void *properties)
{
	return clInitLayer(num_entries, target_dispatch, num_entries_ret,
			   layer_dispatch_ret);
}

/* The loader is going; this library stays mapped (-z nodelete). */
PUBLIC cl_int CL_API_CALL clDeinitLayer(void)
{
	if (!ki_cl_is_child())
		ki_cl_background_stop();
	return CL_SUCCESS;
}

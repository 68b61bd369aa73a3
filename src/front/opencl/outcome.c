/* SPDX-License-Identifier: MIT */

/*
 * What a program is now: the outcome of its last build, compilation or link,
 * who answers for that, and what may be captured of it.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

/* Under the lock. */
static struct ki_list shadows = { &shadows, &shadows };

/* ---- Outcomes ------------------------------------------------------------ */

struct ki_cl_made *ki_cl_made_new(const struct ki_cl_recipe *recipe,
				  struct kiln_key *key, uint64_t stamp,
				  struct ki_cl_targets *targets)
{
	struct ki_cl_made *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	made->refs = 1;
	made->recipe = ki_cl_recipe_ref(recipe);
	made->key = key ? kiln_key_ref(key) : NULL;
	made->stamp = stamp;
	made->targets = targets ? ki_cl_targets_ref(targets) : NULL;
	return made;
}

struct ki_cl_made *ki_cl_made_ref(struct ki_cl_made *made)
{
	if (made) {
		ki_mutex_lock(&ki_cl_lock);
		made->refs++;
		ki_mutex_unlock(&ki_cl_lock);
	}
	return made;
}

void ki_cl_made_unref(struct ki_cl_made *made)
{
	int last;

	if (!made)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--made->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (!last)
		return;
	ki_cl_recipe_unref(made->recipe);
	kiln_key_free(made->key);
	ki_cl_targets_unref(made->targets);
	free(made);
}

struct ki_cl_made *ki_cl_made_of(struct ki_cl_program *program,
				 unsigned *out_change)
{
	struct ki_cl_made *made;

	ki_mutex_lock(&ki_cl_lock);
	made = program->made;
	if (made)
		made->refs++;
	if (out_change)
		*out_change = program->n_changes;
	ki_mutex_unlock(&ki_cl_lock);
	return made;
}

unsigned ki_cl_program_changes(struct ki_cl_program *program)
{
	unsigned n;

	ki_mutex_lock(&ki_cl_lock);
	n = program->n_changes;
	ki_mutex_unlock(&ki_cl_lock);
	return n;
}

unsigned ki_cl_program_change(struct ki_cl_program *program)
{
	struct ki_cl_capture *capture;
	struct ki_cl_made *made;
	unsigned change;

	ki_mutex_lock(&ki_cl_lock);
	change = ++program->n_changes;
	capture = program->capture;
	made = program->made;
	program->capture = NULL;
	program->made = NULL;
	program->had_kernels = 0;
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_capture_unref(capture);
	ki_cl_made_unref(made);
	return change;
}

void ki_cl_program_become(struct ki_cl_program *program, unsigned change,
			  struct ki_cl_made *made)
{
	struct ki_cl_made *before = NULL;

	ki_mutex_lock(&ki_cl_lock);
	if (program->n_changes == change) {
		before = program->made;
		program->made = made;
		if (made)
			made->refs++;
	}
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_made_unref(before);
}

/* ---- Shadows ------------------------------------------------------------- */

void ki_cl_shadow_add(struct ki_cl_shadow *shadow)
{
	shadow->refs = 1;
	ki_mutex_lock(&ki_cl_lock);
	ki_list_append(&shadows, &shadow->link);
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_shadow_unref(struct ki_cl_shadow *shadow)
{
	int last;

	if (!shadow)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--shadow->refs;
	if (last)
		ki_list_remove(&shadow->link);
	ki_mutex_unlock(&ki_cl_lock);
	if (!last)
		return;
	if (shadow->program && !shadow->is_own)
		(void)ki_cl_next.clReleaseProgram(shadow->program);
	kiln_blob_unref(shadow->metadata);
	kiln_blob_unref(shadow->binaries);
	ki_cl_made_unref(shadow->made);
	free(shadow->options);
	free(shadow->devices);
	free(shadow);
}

struct ki_cl_shadow *ki_cl_shadow_of(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow;

	ki_mutex_lock(&ki_cl_lock);
	shadow = program->shadow;
	if (shadow)
		shadow->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return shadow;
}

/* Whether the application still has it: its handle may be another's by now. */
static int is_alive_locked(const struct ki_cl_program *program)
	KI_REQUIRES(&ki_cl_lock)
{
	return program->app_refs || program->n_shadow_kernels;
}

/* One reference more to H in the driver, once. */
static void hold(struct ki_cl_program *program)
{
	int must;

	ki_mutex_lock(&ki_cl_lock);
	must = !program->holds && is_alive_locked(program);
	program->holds |= must;
	ki_mutex_unlock(&ki_cl_lock);
	if (must)
		(void)ki_cl_next.clRetainProgram(program->handle);
}

void ki_cl_program_shadow(struct ki_cl_program *program,
			  struct ki_cl_shadow *shadow)
{
	struct ki_cl_shadow *before;
	int kept;

	if (shadow && !shadow->is_own)
		hold(program);
	ki_mutex_lock(&ki_cl_lock);
	before = program->shadow;
	kept = !shadow || is_alive_locked(program);
	if (kept)
		program->shadow = shadow;
	program->had_kernels = 0;
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_shadow_unref(kept ? before : shadow);
}

void ki_cl_program_unshadow(struct ki_cl_program *program,
			    struct ki_cl_shadow *shadow)
{
	int did;

	ki_mutex_lock(&ki_cl_lock);
	did = program->shadow == shadow;
	if (did)
		program->shadow = NULL;
	ki_mutex_unlock(&ki_cl_lock);
	if (did)
		ki_cl_shadow_unref(shadow);
}

cl_uint ki_cl_shadows_in(cl_context context)
{
	struct ki_list *link;
	cl_uint n = 0;

	ki_mutex_lock(&ki_cl_lock);
	ki_list_for_each (link, &shadows) {
		const struct ki_cl_shadow *shadow =
			ki_container(link, struct ki_cl_shadow, link);

		n += shadow->context == context && shadow->program &&
		     !shadow->is_own;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return n;
}

cl_uint ki_cl_shadows_on(cl_device_id device, struct ki_cl_shadow **out_one)
{
	struct ki_list *link;
	cl_uint n = 0, i;

	ki_mutex_lock(&ki_cl_lock);
	ki_list_for_each (link, &shadows) {
		struct ki_cl_shadow *shadow =
			ki_container(link, struct ki_cl_shadow, link);

		if (!shadow->program || shadow->is_own)
			continue;
		for (i = 0; i < shadow->n_devices; i++)
			if (shadow->devices[i] == device)
				break;
		if (i == shadow->n_devices)
			continue;
		*out_one = shadow;
		n++;
	}
	if (n)
		(*out_one)->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return n;
}

/* ---- What may be captured ------------------------------------------------ */

void ki_cl_capture_unref(struct ki_cl_capture *capture)
{
	int last;

	if (!capture)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--capture->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (!last)
		return;
	ki_cl_made_unref(capture->made);
	ki_bytes_fini(&capture->environment);
	free(capture->directory);
	free(capture);
}

struct ki_cl_capture *ki_cl_capture_of(struct ki_cl_program *program)
{
	struct ki_cl_capture *capture;

	ki_mutex_lock(&ki_cl_lock);
	capture = program->capture;
	if (capture)
		capture->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return capture;
}

int ki_cl_is_captured(struct ki_cl_program *program,
		      const struct ki_cl_capture *capture)
{
	int is_captured;

	ki_mutex_lock(&ki_cl_lock);
	is_captured = program->capture == capture;
	ki_mutex_unlock(&ki_cl_lock);
	return is_captured;
}

int ki_cl_program_capture(struct ki_cl_program *program, unsigned change,
			  struct ki_cl_capture *capture)
{
	struct ki_cl_capture *before = capture;
	int is_still;

	ki_mutex_lock(&ki_cl_lock);
	is_still = program->n_changes == change;
	if (is_still) {
		before = program->capture;
		program->capture = capture;
		program->had_kernels = 0;
	}
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_capture_unref(before);
	return is_still;
}

void ki_cl_program_captured(struct ki_cl_program *program,
			    struct ki_cl_capture *capture)
{
	int was = 0;

	ki_mutex_lock(&ki_cl_lock);
	if (program->capture == capture) {
		program->capture = NULL;
		was = 1;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (was)
		ki_cl_capture_unref(capture);
}

/* SPDX-License-Identifier: MIT */

/*
 * Devices by their four strings.  Those with the same are one class: on disk
 * they share entries, and in memory programs, if the runtime can use one for
 * the other.  A device that cannot be asked is a class of its own.
 *
 * The strings are asked for without the lock; of two threads that come with the
 * same device at first, the second finds it known.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "program/program.h"

/*
 * Platform's name, device's name, version and driver's version, as DPC++ joins
 * them, NUL, and how long each is: "a/b" and "c" are not "a" and "b/c".  Empty
 * if one is not to be had, and NULL without memory.
 */
static char *ask(struct kiln_programs *programs, void *handle)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	uint64_t lengths[KILN_N_DEVICE_STRINGS] = { 0 };
	struct ki_bytes joined;
	int is_known = runtime->device_string != NULL;

	ki_bytes_init(&joined);
	for (int i = 0; i < KILN_N_DEVICE_STRINGS && is_known; i++) {
		char *text = runtime->device_string(runtime->context, handle,
						    (enum kiln_device_string)i);

		if (i)
			ki_bytes_add_u8(&joined, '/');
		if (text) {
			lengths[i] = strlen(text);
			ki_bytes_add_string(&joined, text);
		} else {
			is_known = 0;
		}
		free(text);
	}
	if (!is_known)
		ki_bytes_clear(&joined);
	ki_bytes_add_u8(&joined, 0);
	ki_bytes_add(&joined, lengths, sizeof(lengths));
	return (char *)ki_bytes_take(&joined, &(size_t){ 0 });
}

static int is_same_class(const char *a, const char *b)
{
	const size_t size = strlen(a) + 1;

	return !strcmp(a, b) &&
	       !memcmp(a + size, b + size,
		       KILN_N_DEVICE_STRINGS * sizeof(uint64_t));
}

/* Takes over `identity`; "" is like no other.  -ENOMEM. */
static int class_of_locked(struct kiln_programs *programs, char *identity,
			   uint32_t *out_class)
{
	size_t n = programs->n_classes, class = 0;
	char **more;

	while (class < n &&
	       (!*identity ||
		!is_same_class(identity, programs->classes[class])))
		class ++;
	*out_class = (uint32_t) class;
	if (class < n) {
		free(identity);
		return 0;
	}
	more = realloc(programs->classes, (n + 1) * sizeof(*more));
	if (!more) {
		free(identity);
		return -ENOMEM;
	}
	programs->classes = more;
	programs->classes[programs->n_classes++] = identity;
	return 0;
}

static enum kiln_status add_locked(struct kiln_programs *programs, void *handle,
				   char *identity, struct ki_device *out_device)
{
	struct ki_devices *old = atomic_load(&programs->devices), *new;
	size_t n = old ? old->n : 0;
	struct ki_device device = { .handle = handle, .unit = (uint32_t)n };

	if (class_of_locked(programs, identity, &device.class))
		return KILN_E_NO_MEMORY;
	if (programs->home->runtime.serves_identical)
		device.unit = device.class;
	new = malloc(sizeof(*new) + (n + 1) * sizeof(new->of[0]));
	if (!new)
		return KILN_E_NO_MEMORY;
	new->older = old;
	new->n = n + 1;
	if (old)
		memcpy(new->of, old->of, n * sizeof(new->of[0]));
	new->of[n] = device;
	atomic_store(&programs->devices, new);
	*out_device = device;
	return KILN_OK;
}

enum kiln_status ki_device_find(struct kiln_programs *programs, void *handle,
				struct ki_device *out_device)
{
	enum kiln_status status = KILN_OK;
	char *identity;

	if (ki_device_look(programs, handle, out_device))
		return KILN_OK;
	identity = ask(programs, handle);
	if (!identity)
		return KILN_E_NO_MEMORY;
	ki_mutex_lock(&programs->mutex);
	if (ki_device_look(programs, handle, out_device))
		free(identity);
	else
		status = add_locked(programs, handle, identity, out_device);
	ki_mutex_unlock(&programs->mutex);
	return status;
}

const char *ki_device_identity(struct kiln_programs *programs, uint32_t class)
{
	const char *identity;

	ki_mutex_lock(&programs->mutex);
	identity = programs->classes[class];
	ki_mutex_unlock(&programs->mutex);
	return *identity ? identity : NULL;
}

void ki_devices_fini(struct kiln_programs *programs)
{
	struct ki_devices *devices = atomic_load(&programs->devices);

	for (size_t i = 0; i < programs->n_classes; i++)
		free(programs->classes[i]);
	free(programs->classes);
	while (devices) {
		struct ki_devices *older = devices->older;

		free(devices);
		devices = older;
	}
}

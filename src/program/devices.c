/* SPDX-License-Identifier: MIT */

/*
 * Devices by their four strings.  Those with the same are one class: on disk
 * they share entries, and in memory programs, if the runtime can use one for
 * the other.  A device that cannot be asked is a class of its own.
 *
 * The strings are asked for without the lock; of two threads that come with the
 * same device at first, the second finds it known.
 */

#include <stdlib.h>

#include "base/bytes.h"
#include "program/program.h"

static int find_locked(struct kiln_programs *programs, void *handle,
		       struct ki_device *out_device)
	KI_REQUIRES(&programs->mutex)
{
	for (size_t i = 0; i < programs->n_devices; i++) {
		if (programs->devices[i].handle == handle) {
			*out_device = programs->devices[i];
			return 1;
		}
	}
	return 0;
}

/*
 * Platform's name, device's name, version and driver's version, as DPC++ joins
 * them; empty if one is not to be had, and NULL without memory.
 */
static char *ask(struct kiln_programs *programs, void *handle)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	struct ki_bytes joined;
	int is_known = runtime->device_string != NULL;

	ki_bytes_init(&joined);
	for (int i = 0; i < KILN_N_DEVICE_STRINGS && is_known; i++) {
		char *text = runtime->device_string(runtime->context, handle,
						    (enum kiln_device_string)i);

		if (i)
			ki_bytes_add_u8(&joined, '/');
		if (text)
			ki_bytes_add_string(&joined, text);
		else
			is_known = 0;
		free(text);
	}
	if (!is_known)
		ki_bytes_clear(&joined);
	ki_bytes_add_u8(&joined, 0);
	return (char *)ki_bytes_take(&joined, &(size_t){ 0 });
}

static int grow(void **array, size_t n, size_t size)
{
	void *more = realloc(*array, (n + 1) * size);

	if (more)
		*array = more;
	return more != NULL;
}

/* Takes over `identity`; "" is like no other. */
static enum kiln_status add_locked(struct kiln_programs *programs, void *handle,
				   char *identity, struct ki_device *out_device)
	KI_REQUIRES(&programs->mutex)
{
	struct ki_device device = { .handle = handle,
				    .unit = (uint32_t)programs->n_devices };
	size_t class = 0;

	while (class < programs->n_classes &&
	       (!*identity || strcmp(identity, programs->classes[class])))
		class ++;
	if (!grow((void **)&programs->devices, programs->n_devices,
		  sizeof(*programs->devices)) ||
	    (class == programs->n_classes &&
	     !grow((void **)&programs->classes, class,
		   sizeof(*programs->classes)))) {
		free(identity);
		return KILN_E_NO_MEMORY;
	}
	if (class == programs->n_classes)
		programs->classes[programs->n_classes++] = identity;
	else
		free(identity);
	device.class = (uint32_t) class;
	if (programs->home->runtime.serves_identical)
		device.unit = device.class;
	programs->devices[programs->n_devices++] = device;
	*out_device = device;
	return KILN_OK;
}

enum kiln_status ki_device_find(struct kiln_programs *programs, void *handle,
				struct ki_device *out_device)
{
	enum kiln_status status = KILN_OK;
	char *identity;
	int is_known;

	ki_mutex_lock(&programs->mutex);
	is_known = find_locked(programs, handle, out_device);
	ki_mutex_unlock(&programs->mutex);
	if (is_known)
		return KILN_OK;
	identity = ask(programs, handle);
	if (!identity)
		return KILN_E_NO_MEMORY;
	ki_mutex_lock(&programs->mutex);
	if (find_locked(programs, handle, out_device))
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
	for (size_t i = 0; i < programs->n_classes; i++)
		free(programs->classes[i]);
	free(programs->classes);
	free(programs->devices);
}

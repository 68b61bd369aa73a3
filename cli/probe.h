/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PROBE_H
#define KI_CLI_PROBE_H

/*
 * Trying things that may crash, hang or print, each in a child process with
 * nothing on its standard descriptors and ten seconds to live.
 */

#include <stddef.h>

#define KI_PROBE_TEXT	   256
#define KI_PROBE_PLATFORMS 8

struct ki_probe_layer {
	int is_loadable;
	char error[KI_PROBE_TEXT]; /* why not */
};

/* Load the layer as a loader would, and look for its four entry points. */
void ki_probe_layer(const char *path, struct ki_probe_layer *out);

struct ki_probe_loader {
	int is_there;
	char error[KI_PROBE_TEXT]; /* why not */
	char path[KI_PROBE_TEXT];
	char vendor[KI_PROBE_TEXT];  /* "OCL Icd free software" */
	char version[KI_PROBE_TEXT]; /* "2.3.1" */
	int knows_layers;
	int n_platforms; /* -1: it did not come so far */
	int n_named;
	struct {
		char name[KI_PROBE_TEXT];
		int n_devices;
	} platforms[KI_PROBE_PLATFORMS];
	int layer_is_active; /* the loader has loaded ours */
};

/* A small OpenCL program: find the platforms, with OPENCL_LAYERS as `layers`
   (NULL: without); is `layer` in it then? */
void ki_probe_loader(const char *layers, const char *layer,
		     struct ki_probe_loader *out);

struct ki_probe_levelzero {
	int is_there;
	char error[KI_PROBE_TEXT]; /* why not, or what went wrong */
	char path[KI_PROBE_TEXT];
	char version[KI_PROBE_TEXT];
	int knows_lists;
	int knows_handles;   /* levelzero.h */
	int proxy_is_active; /* the loader has loaded it */
	int driver_is_active;
	unsigned init; /* what zeInit answered */
	int n_devices;
	char device[KI_PROBE_TEXT]; /* the first one's name */
};

/* A small Level Zero program: find the devices, with `list` and `driver` as
   `kiln run` sets them; are `proxy` and the driver in it then? */
void ki_probe_levelzero(const char *list, const char *driver, const char *proxy,
			struct ki_probe_levelzero *out);

/* Whether this worker may build for CPUs of the platform of this name. */
int ki_probe_worker(const char *worker, const char *platform);

#endif /* KI_CLI_PROBE_H */

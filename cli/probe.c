/* SPDX-License-Identifier: MIT */

#include "probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "levelzero.h"
#include "parent.h"
#include "sys/sys.h"

#define SECONDS_MAX	  10
#define LIBRARY_BYTES_MAX ((size_t)8 << 20)

/* The few names of OpenCL that are needed; the tool does not depend on its
   headers. */
typedef int32_t platform_ids_fn(uint32_t n, void **out, uint32_t *out_n);
typedef int32_t platform_info_fn(void *platform, uint32_t name, size_t size,
				 void *value, size_t *out_size);
typedef int32_t device_ids_fn(void *platform, uint64_t type, uint32_t n,
			      void **out, uint32_t *out_n);
typedef int32_t loader_info_fn(uint32_t name, size_t size, void *value,
			       size_t *out_size);
typedef void *extension_fn(const char *name);
#define PLATFORM_NAME	0x0902
#define DEVICE_TYPE_ALL 0xffffffffu
#define LOADER_VERSION	2
#define LOADER_VENDOR	4

/* ---- A child that may break ------------------------------------------------- */

typedef void attempt_fn(const void *arg, void *result);

struct attempt {
	attempt_fn *body;
	const void *arg;
	void *result;
	size_t size;
};

static void make_harmless(void)
{
	struct rlimit none = { 0, 0 };
	int fd = open("/dev/null", O_RDWR), i;

	for (i = 0; fd >= 0 && i <= 2; i++)
		dup2(fd, i);
	setrlimit(RLIMIT_CORE, &none);
	signal(SIGALRM, SIG_DFL);
	alarm(SECONDS_MAX);
}

/* The result travels whole, at the end: a child that breaks sends nothing. */
static void in_child(const struct attempt *attempt, int fd)
{
	const char *data = attempt->result;
	size_t done = 0;

	make_harmless();
	attempt->body(attempt->arg, attempt->result);
	while (done < attempt->size) {
		ssize_t n = write(fd, data + done, attempt->size - done);
		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	_exit(0);
}

static size_t read_all(int fd, void *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = read(fd, (char *)data + done, size - done);
		if (!n || (n < 0 && errno != EINTR))
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	return done;
}

/* 0, or -1 with a sentence in `error`; the result is then as it was. */
static int try(struct attempt *attempt, char error[KI_PROBE_TEXT])
{
	void *answer = malloc(attempt->size);
	int ends[2], status = 0, result = -1;
	size_t n = 0;
	pid_t child;

	snprintf(error, KI_PROBE_TEXT, "cannot start a process");
	if (!answer || ki_parent_pipe(ends))
		goto out;
	signal(SIGCHLD, SIG_DFL);
	child = fork();
	if (!child)
		in_child(attempt, ends[1]);
	close(ends[1]);
	if (child > 0) {
		n = read_all(ends[0], answer, attempt->size);
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		snprintf(error, KI_PROBE_TEXT, "trying it ended by signal %d%s",
			 WTERMSIG(status),
			 WTERMSIG(status) == SIGALRM ? " after 10 seconds"
						     : "");
	}
	close(ends[0]);
	if (n == attempt->size) {
		memcpy(attempt->result, answer, n);
		result = 0;
	}
out:
	free(answer);
	return result;
}

/* ---- The layer ----------------------------------------------------------------- */

static void load_layer(const void *arg, void *result)
{
	static const char *const symbols[] = { "clGetLayerInfo", "clInitLayer",
					       "clInitLayerWithProperties",
					       "clDeinitLayer" };
	struct ki_probe_layer *out = result;
	void *library = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
	size_t i;

	if (!library) {
		snprintf(out->error, sizeof(out->error), "%s", dlerror());
		return;
	}
	for (i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		if (dlsym(library, symbols[i]))
			continue;
		snprintf(out->error, sizeof(out->error), "it lacks %s",
			 symbols[i]);
		return;
	}
	out->is_loadable = 1;
}

void ki_probe_layer(const char *path, struct ki_probe_layer *out)
{
	struct attempt attempt = { load_layer, path, out, sizeof(*out) };
	char error[KI_PROBE_TEXT];

	memset(out, 0, sizeof(*out));
	if (try(&attempt, error))
		memcpy(out->error, error, sizeof(error));
}

/* ---- The loader ------------------------------------------------------------------ */

static void name_loader(void *library, struct ki_probe_loader *out)
{
	extension_fn *extension;
	loader_info_fn *info = NULL;
	Dl_info where;

	*(void **)&extension = dlsym(library, "clGetExtensionFunctionAddress");
	if (extension)
		*(void **)&info = extension("clGetICDLoaderInfoOCLICD");
	if (info) {
		(void)info(LOADER_VENDOR, sizeof(out->vendor) - 1, out->vendor,
			   NULL);
		(void)info(LOADER_VERSION, sizeof(out->version) - 1,
			   out->version, NULL);
	}
	if (dladdr(dlsym(library, "clGetPlatformIDs"), &where) &&
	    where.dli_fname)
		snprintf(out->path, sizeof(out->path), "%s", where.dli_fname);
}

/* A loader that knows layers has the variable's name in it. */
static int has_text(const char *path, const char *text)
{
	void *data;
	size_t size;
	int found;

	if (ki_read_file(&ki_sys_posix, path, LIBRARY_BYTES_MAX, &data, &size))
		return 0;
	found = memmem(data, size, text, strlen(text)) != NULL;
	free(data);
	return found;
}

static void list_platforms(void *library, struct ki_probe_loader *out)
{
	void *platforms[KI_PROBE_PLATFORMS];
	platform_info_fn *platform_info;
	platform_ids_fn *platform_ids;
	device_ids_fn *device_ids;
	uint32_t n = 0, i;

	*(void **)&platform_ids = dlsym(library, "clGetPlatformIDs");
	*(void **)&platform_info = dlsym(library, "clGetPlatformInfo");
	*(void **)&device_ids = dlsym(library, "clGetDeviceIDs");
	if (!platform_ids || !platform_info || !device_ids)
		return;
	if (platform_ids(KI_PROBE_PLATFORMS, platforms, &n))
		n = 0;
	out->n_platforms = (int)n;
	for (i = 0; i < n && i < KI_PROBE_PLATFORMS; i++) {
		uint32_t n_devices = 0;

		(void)platform_info(platforms[i], PLATFORM_NAME,
				    sizeof(out->platforms[i].name) - 1,
				    out->platforms[i].name, NULL);
		(void)device_ids(platforms[i], DEVICE_TYPE_ALL, 0, NULL,
				 &n_devices);
		out->platforms[i].n_devices = (int)n_devices;
		out->n_named = (int)i + 1;
	}
}

static void use_loader(const void *arg, void *result)
{
	struct ki_probe_loader *out = result;
	const char *layer = arg;
	void *library;

	library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(out->error, sizeof(out->error), "%s", dlerror());
		return;
	}
	out->is_there = 1;
	name_loader(library, out);
	out->knows_layers = has_text(out->path, "OPENCL_LAYERS");
	list_platforms(library, out);
	out->layer_is_active =
		layer && dlopen(layer, RTLD_LAZY | RTLD_NOLOAD) != NULL;
}

struct layered {
	const char *layers;
	const char *layer;
};

static void use_loader_layered(const void *arg, void *result)
{
	const struct layered *layered = arg;

	if (layered->layers)
		setenv("OPENCL_LAYERS", layered->layers, 1);
	else
		unsetenv("OPENCL_LAYERS");
	/* Looking must leave no traces. */
	setenv("KILN_READONLY", "1", 1);
	use_loader(layered->layer, result);
}

void ki_probe_loader(const char *layers, const char *layer,
		     struct ki_probe_loader *out)
{
	struct layered layered = { layers, layer };
	struct attempt attempt = { use_loader_layered, &layered, out,
				   sizeof(*out) };
	char error[KI_PROBE_TEXT];

	memset(out, 0, sizeof(*out));
	out->n_platforms = -1;
	if (try(&attempt, error))
		memcpy(out->error, error, sizeof(error));
}

/* ---- Level Zero ------------------------------------------------------------------ */

/* The few names of it that are needed. */
typedef uint32_t ze_init_fn(uint32_t flags);
typedef uint32_t ze_get_fn(uint32_t *n, void **out);
typedef uint32_t ze_device_get_fn(void *driver, uint32_t *n, void **out);
typedef uint32_t ze_properties_fn(void *device, void *properties);
typedef uint32_t ze_versions_fn(size_t *n, void *versions);
#define ZE_DRIVERS_MAX 8
#define ZE_DEVICES_MAX 64
#define ZE_COMPONENTS  8

struct ze_component {
	char name[64];
	uint32_t interface;
	int version[3];
};

/* ze_device_properties_t, its name in the middle of the rest. */
struct ze_properties {
	uint32_t stype;
	void *next;
	char before[96];
	char name[256];
	char after[256];
};
#define ZE_STYPE_DEVICE_PROPERTIES 0x3

struct ze_setting {
	const char *list;
	const char *driver;
	const char *proxy;
};

static void name_ze_loader(void *library, struct ki_probe_levelzero *out)
{
	struct ze_component components[ZE_COMPONENTS] = { 0 };
	size_t n = ZE_COMPONENTS, i;
	ze_versions_fn *versions;
	Dl_info where;

	*(void **)&versions = dlsym(library, "zelLoaderGetVersions");
	if (!versions || versions(&n, components))
		n = 0;
	for (i = 0; i < n && i < ZE_COMPONENTS; i++)
		if (!strncmp(components[i].name, "loader",
			     sizeof(components[i].name)))
			snprintf(out->version, sizeof(out->version), "%d.%d.%d",
				 components[i].version[0],
				 components[i].version[1],
				 components[i].version[2]);
	if (dladdr(dlsym(library, "zeInit"), &where) && where.dli_fname)
		snprintf(out->path, sizeof(out->path), "%s", where.dli_fname);
}

static void list_ze_devices(void *library, struct ki_probe_levelzero *out)
{
	void *drivers[ZE_DRIVERS_MAX], *devices[ZE_DEVICES_MAX];
	uint32_t n_drivers = ZE_DRIVERS_MAX, n, i;
	struct ze_properties properties;
	ze_properties_fn *get_properties;
	ze_device_get_fn *device_get;
	ze_get_fn *driver_get;

	*(void **)&driver_get = dlsym(library, "zeDriverGet");
	*(void **)&device_get = dlsym(library, "zeDeviceGet");
	*(void **)&get_properties = dlsym(library, "zeDeviceGetProperties");
	if (!driver_get || !device_get || !get_properties ||
	    driver_get(&n_drivers, drivers))
		return;
	for (i = 0; i < n_drivers && i < ZE_DRIVERS_MAX; i++) {
		n = ZE_DEVICES_MAX;
		if (device_get(drivers[i], &n, devices) || !n)
			continue;
		memset(&properties, 0, sizeof(properties));
		properties.stype = ZE_STYPE_DEVICE_PROPERTIES;
		if (!out->n_devices && !get_properties(devices[0], &properties))
			snprintf(out->device, sizeof(out->device), "%.255s",
				 properties.name);
		out->n_devices += (int)n;
	}
}

static void use_ze_loader(const void *arg, void *result)
{
	const struct ze_setting *setting = arg;
	struct ki_probe_levelzero *out = result;
	ze_init_fn *init;
	void *library;

	setenv(KI_ZE_LIST, setting->list, 1);
	setenv(KI_ZE_DRIVER, setting->driver, 1);
	(void)ki_levelzero_keep(setting->list);
	/* Looking must leave no traces. */
	setenv("KILN_READONLY", "1", 1);
	library = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
	*(void **)&init = library ? dlsym(library, "zeInit") : NULL;
	if (!init) {
		snprintf(out->error, sizeof(out->error), "%s", dlerror());
		return;
	}
	out->is_there = 1;
	out->init = init(0);
	name_ze_loader(library, out);
	out->knows_lists = has_text(out->path, KI_ZE_LIST);
	out->knows_handles = has_text(out->path, KI_ZE_HANDLES);
	out->proxy_is_active =
		dlopen(setting->proxy, RTLD_LAZY | RTLD_NOLOAD) != NULL;
	out->driver_is_active =
		dlopen(setting->driver, RTLD_LAZY | RTLD_NOLOAD) != NULL;
	/* Without zeInit, loaders break. */
	if (!out->init)
		list_ze_devices(library, out);
}

void ki_probe_levelzero(const char *list, const char *driver, const char *proxy,
			struct ki_probe_levelzero *out)
{
	struct ze_setting setting = { list, driver, proxy };
	struct attempt attempt = { use_ze_loader, &setting, out, sizeof(*out) };
	char error[KI_PROBE_TEXT];

	memset(out, 0, sizeof(*out));
	if (try(&attempt, error))
		memcpy(out->error, error, sizeof(error));
}

/* ---- The worker -------------------------------------------------------- */

int ki_probe_worker(const char *worker, const char *platform)
{
	int status = 0;
	pid_t child;

	signal(SIGCHLD, SIG_DFL);
	child = fork();
	if (!child) {
		make_harmless();
		execl(worker, "kiln-worker", "--may-build", platform,
		      (char *)NULL);
		_exit(127);
	}
	if (child < 0)
		return 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* SPDX-License-Identifier: MIT */

/*
 * A program that nobody changed: what it is told of its modules it writes down.
 *
 *	calls spirv FILE		OpenCL C compiled into SPIR-V
 *	calls run OUT SPIRV SCRIPT...	the scripts below, one after another; "-"
 *					is SPIR-V that no compiler needs
 *
 *	calls time OUT SPIRV N		nanoseconds of each of N creations
 *
 * Written is all that can be asked, and no handle.  When it is through it says
 * so by closing descriptor 1, and ends once descriptor 0 ends.
 */

#include "standin.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_THREADS 4
#define SPEC_ID	  7

static FILE *out;
static struct bytes plain, special; /* SPIR-V, and with a constant */
static ze_context_handle_t context;
static ze_device_handle_t devices[3];

/* ---- SPIR-V ------------------------------------------------------------------- */

static const char SOURCE[] = "__kernel void add(__global int *a, int k)\n"
			     "{ a[get_global_id(0)] += 41 * k; }\n";

/* A module with nothing in it but a type and the constant 41. */
static const uint32_t SMALL[] = {
	0x07230203, 0x00010000, 0,  20, 0, /* header */
	0x20011,    6,			   /* OpCapability Kernel */
	0x3000e,    2,		2,	   /* OpMemoryModel */
	0x30047,    14,		22,	   /* OpDecorate Constant */
	0x40015,    7,		32, 0,	   /* OpTypeInt */
	0x4002b,    7,		14, 41,	   /* OpConstant */
};

static int make_spirv(const char *path)
{
	static const char *const arguments[] = { "ocloc",    "compile", "-file",
						 "k.cl",     "-device", "tgllp",
						 "-spv_only" };
	struct bytes spirv = { 0 }, log = { 0 };
	FILE *file = fopen(path, "wb");
	int failed =
		ocloc(arguments, sizeof(arguments) / sizeof(arguments[0]),
		      SOURCE, sizeof(SOURCE), "k.cl", ".spv", &spirv, &log);

	if (!failed && file)
		fwrite(spirv.data, 1, spirv.size, file);
	if (file)
		fclose(file);
	free(spirv.data);
	free(log.data);
	return failed || !file;
}

/* The constant 41 becomes one that can be set: OpConstant OpSpecConstant, and
   before it, behind the last decoration, OpDecorate SpecId. */
static void make_special(void)
{
	uint32_t *words = (uint32_t *)plain.data, size;
	size_t n = plain.size / 4, i, last = 0;
	uint32_t target = 0;

	for (i = 5; i < n; i += size) {
		size = words[i] >> 16;
		if (!size)
			abort();
		if ((words[i] & 0xffff) == 71)
			last = i + size;
		if (words[i] == 0x4002b && words[i + 3] == 41 && !target)
			target = words[i + 2];
	}
	if (!last || !target)
		abort();
	bytes_add(&special, words, last * 4);
	bytes_add_u32(&special, 0x40047);
	bytes_add_u32(&special, target);
	bytes_add_u32(&special, 1);
	bytes_add_u32(&special, SPEC_ID);
	bytes_add(&special, words + last, plain.size - last * 4);
	words = (uint32_t *)special.data;
	for (i = last + 4; i < special.size / 4; i += words[i] >> 16)
		if (words[i] == 0x4002b && words[i + 2] == target)
			words[i] = 0x40032;
}

/* ---- Telling ------------------------------------------------------------------ */

static void tell_bytes(const char *what, const uint8_t *data, size_t size)
{
	uint64_t sum = 14695981039346656037u;
	size_t i;

	for (i = 0; i < size; i++)
		sum = (sum ^ data[i]) * 1099511628211u;
	fprintf(out, "  %s %zu %016llx\n", what, size, (unsigned long long)sum);
}

static void tell_log(ze_module_build_log_handle_t log)
{
	size_t size = 0;
	char *text;

	fprintf(out, "  log %x", zeModuleBuildLogGetString(log, &size, NULL));
	text = calloc(1, size + 1);
	fprintf(out, " %x", zeModuleBuildLogGetString(log, &size, text));
	fprintf(out, " %zu '%s'\n", size, text);
	free(text);
}

static struct bytes binary_of(ze_module_handle_t module)
{
	struct bytes binary = { 0 };

	if (zeModuleGetNativeBinary(module, &binary.size, NULL))
		return binary;
	binary.data = malloc(binary.size + 1);
	(void)zeModuleGetNativeBinary(module, &binary.size, binary.data);
	return binary;
}

static void tell_binary(ze_module_handle_t module)
{
	struct bytes binary = binary_of(module);

	tell_bytes("binary", binary.data, binary.size);
	free(binary.data);
}

/* ---- Scripts ------------------------------------------------------------------ */

static ze_module_desc_t desc_of(const struct bytes *spirv)
{
	return (ze_module_desc_t){
		.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
		.format = ZE_MODULE_FORMAT_IL_SPIRV,
		.inputSize = spirv->size,
		.pInputModule = spirv->data,
	};
}

static void create_on(ze_device_handle_t device, const char *name,
		      const ze_module_desc_t *desc)
{
	ze_module_build_log_handle_t log = NULL;
	ze_module_handle_t module = NULL;
	ze_result_t result =
		zeModuleCreate(context, device, desc, &module, &log);

	fprintf(out, "%s: %x %d %d\n", name, result, module != NULL,
		log != NULL);
	if (log)
		tell_log(log);
	if (module)
		tell_binary(module);
	if (module)
		fprintf(out, "  destroyed %x\n", zeModuleDestroy(module));
	if (log)
		fprintf(out, "  log destroyed %x\n",
			zeModuleBuildLogDestroy(log));
}

static void create(const char *name, const ze_module_desc_t *desc)
{
	create_on(devices[0], name, desc);
}

static void one(void)
{
	ze_module_desc_t desc = desc_of(&plain);

	create("one", &desc);
}

static void flags(void)
{
	ze_module_desc_t desc = desc_of(&plain);

	desc.pBuildFlags = "-cl-opt-disable";
	create("flags", &desc);
	desc.pBuildFlags = "";
	create("empty flags", &desc);
}

/* Two settings, and one of a constant that is not there. */
static void constants(void)
{
	uint32_t id = SPEC_ID, value = 5;
	const void *values[] = { &value };
	const ze_module_constants_t set = { 1, &id, values };
	ze_module_desc_t desc = desc_of(&special);

	create("constant as it is", &desc);
	desc.pConstants = &set;
	create("constant 5", &desc);
	value = 6;
	create("constant 6", &desc);
	id = 99;
	create("no constant", &desc);
}

static void program(void)
{
	uint32_t id = SPEC_ID, value = 5;
	const void *values[] = { &value };
	const ze_module_constants_t set = { 1, &id, values };
	const ze_module_constants_t *sets[] = { NULL, &set };
	const char *all_flags[] = { "-cl-opt-disable", NULL };
	const uint8_t *modules[] = { plain.data, special.data };
	const size_t sizes[] = { plain.size, special.size };
	ze_module_program_exp_desc_t several = {
		.stype = ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC,
		.count = 2,
		.inputSizes = sizes,
		.pInputModules = modules,
		.pBuildFlags = all_flags,
		.pConstants = sets,
	};
	ze_module_desc_t desc = {
		.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
		.pNext = &several,
		.format = ZE_MODULE_FORMAT_IL_SPIRV,
	};

	create("program", &desc);
	value = 6;
	create("program with another constant", &desc);
	several.count = 1;
	several.pBuildFlags = NULL;
	several.pConstants = NULL;
	create("program of one", &desc);
}

static void garbage(void)
{
	struct bytes bad = { 0 };
	ze_module_desc_t desc;

	bytes_add(&bad, plain.data, plain.size);
	bad.data[0] ^= 1;
	desc = desc_of(&bad);
	create("garbage", &desc);
	free(bad.data);
}

static void native(void)
{
	ze_module_desc_t desc = desc_of(&plain);
	ze_module_handle_t module = NULL;
	struct bytes binary;

	if (zeModuleCreate(context, devices[0], &desc, &module, NULL))
		return;
	binary = binary_of(module);
	(void)zeModuleDestroy(module);
	desc = desc_of(&binary);
	desc.format = ZE_MODULE_FORMAT_NATIVE;
	create("native", &desc);
	create_on(devices[1], "native of another device", &desc);
	free(binary.data);
}

/* Alone, before one that is known, and behind it. */
static void unknown(void)
{
	struct {
		uint32_t stype;
		const void *next;
	} extension = { 0x7ffffff0, NULL };
	ze_module_desc_t desc = desc_of(&plain);
	const uint8_t *modules[] = { plain.data };
	ze_module_program_exp_desc_t several = {
		.stype = ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC,
		.count = 1,
		.inputSizes = &plain.size,
		.pInputModules = modules,
	};

	desc.pNext = &extension;
	create("unknown extension", &desc);
	extension.next = &several;
	create("before a known one", &desc);
	extension.next = NULL;
	several.pNext = &extension;
	desc.pNext = &several;
	create("behind a known one", &desc);
}

/* What a program asks of modules, and what linking says of them. */
static void ask(void)
{
	ze_module_build_log_handle_t log = NULL, link_log = NULL;
	ze_module_desc_t descs[] = { desc_of(&plain), desc_of(&special) };
	ze_module_properties_t properties = {
		.stype = ZE_STRUCTURE_TYPE_MODULE_PROPERTIES,
	};
	ze_module_handle_t modules[2] = { NULL, NULL };
	const char *names[2];
	uint32_t n = 2, i;

	for (i = 0; i < 2; i++) {
		if (zeModuleCreate(context, devices[0], &descs[i], &modules[i],
				   i ? NULL : &log))
			abort();
		fprintf(out, "asked: %x",
			zeModuleGetKernelNames(modules[i], &n, names));
		fprintf(out, " %u %s %s", n, names[0], names[1]);
		fprintf(out, " %x",
			zeModuleGetProperties(modules[i], &properties));
		fprintf(out, " %x\n", properties.flags);
	}
	fprintf(out, "linked: %x\n",
		zeModuleDynamicLink(2, modules, &link_log));
	tell_log(link_log);
	tell_log(log);
	fprintf(out, "again: %x\n", zeModuleDynamicLink(1, modules, NULL));
	for (i = 0; i < 2; i++) {
		tell_binary(modules[i]);
		(void)zeModuleDestroy(modules[i]);
	}
	(void)zeModuleBuildLogDestroy(log);
	(void)zeModuleBuildLogDestroy(link_log);
}

static void each_device(void)
{
	ze_module_desc_t desc = desc_of(&plain);
	int i;

	for (i = 0; i < 3; i++)
		create_on(devices[i], "device", &desc);
}

/* A part of a part of the second device. */
static void part(void)
{
	ze_device_handle_t device = devices[1];
	ze_module_desc_t desc = desc_of(&plain);
	uint32_t n = 1;
	int i;

	for (i = 0; i < 2; i++)
		if (zeDeviceGetSubDevices(device, &n, &device) || !n)
			abort();
	create_on(devices[1], "device", &desc);
	create_on(device, "its part", &desc);
}

static void wrong(void)
{
	ze_module_handle_t module = NULL;
	ze_module_desc_t desc = { .stype = ZE_STRUCTURE_TYPE_MODULE_DESC };

	fprintf(out, "wrong: %x",
		zeModuleCreate(context, devices[0], NULL, &module, NULL));
	fprintf(out, " %x",
		zeModuleCreate(context, devices[0], &desc, &module, NULL));
	desc = desc_of(&plain);
	fprintf(out, " %x\n",
		zeModuleCreate(context, devices[0], &desc, NULL, NULL));
}

/* A log that was not asked for, then one that was. */
static void without_log(void)
{
	ze_module_desc_t desc = desc_of(&plain);
	ze_module_handle_t module = NULL;

	fprintf(out, "without log: %x\n",
		zeModuleCreate(context, devices[0], &desc, &module, NULL));
	tell_binary(module);
	(void)zeModuleDestroy(module);
	create("with log", &desc);
}

static void destroy_at_once(void)
{
	ze_module_desc_t desc = desc_of(&plain);
	ze_module_handle_t module = NULL;
	ze_result_t result =
		zeModuleCreate(context, devices[0], &desc, &module, NULL);

	fprintf(out, "at once: %x", result);
	fprintf(out, " %x\n", zeModuleDestroy(module));
}

/* The module is never destroyed, but what it was made in. */
static void destroy_context(void)
{
	static ze_module_handle_t module;
	ze_module_desc_t desc = desc_of(&plain);
	ze_result_t result =
		zeModuleCreate(context, devices[0], &desc, &module, NULL);

	fprintf(out, "context: %x", result);
	fprintf(out, " %x\n", zeContextDestroy(context));
	context = NULL;
}

static ze_result_t results[N_THREADS];
static struct bytes binaries[N_THREADS];

/* Half of them want the same. */
static void *in_thread(void *arg)
{
	size_t i = (size_t)arg;
	ze_module_desc_t desc = desc_of(i % 2 ? &plain : &special);
	ze_module_build_log_handle_t log = NULL;
	ze_module_handle_t module = NULL;

	results[i] = zeModuleCreate(context, devices[i / 2 % 2], &desc, &module,
				    i & 1 ? &log : NULL);
	binaries[i] = binary_of(module);
	(void)zeModuleDestroy(module);
	if (log)
		(void)zeModuleBuildLogDestroy(log);
	return NULL;
}

static void threads(void)
{
	pthread_t ids[N_THREADS];
	size_t i;

	for (i = 0; i < N_THREADS; i++)
		pthread_create(&ids[i], NULL, in_thread, (void *)i);
	for (i = 0; i < N_THREADS; i++)
		pthread_join(ids[i], NULL);
	for (i = 0; i < N_THREADS; i++) {
		fprintf(out, "thread: %x\n", results[i]);
		tell_bytes("binary", binaries[i].data, binaries[i].size);
		free(binaries[i].data);
	}
}

#define N_SAME 8

static struct {
	const struct bytes *il;
	pthread_barrier_t barrier;
	ze_result_t results[N_SAME];
	struct bytes binaries[N_SAME];
} same;

static void *in_same_thread(void *arg)
{
	size_t i = (size_t)arg;
	ze_module_desc_t desc = desc_of(same.il);
	ze_module_handle_t module = NULL;

	pthread_barrier_wait(&same.barrier);
	same.results[i] =
		zeModuleCreate(context, devices[0], &desc, &module, NULL);
	if (module)
		same.binaries[i] = binary_of(module);
	pthread_barrier_wait(&same.barrier);
	if (module)
		(void)zeModuleDestroy(module);
	return NULL;
}

/* All want the same at the same time. */
static void want_same(const struct bytes *il)
{
	pthread_t ids[N_SAME];
	size_t i;

	same.il = il;
	pthread_barrier_init(&same.barrier, NULL, N_SAME);
	for (i = 0; i < N_SAME; i++)
		pthread_create(&ids[i], NULL, in_same_thread, (void *)i);
	for (i = 0; i < N_SAME; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&same.barrier);
	for (i = 0; i < N_SAME; i++) {
		fprintf(out, "same: %x\n", same.results[i]);
		tell_bytes("binary", same.binaries[i].data,
			   same.binaries[i].size);
		free(same.binaries[i].data);
		same.binaries[i] = (struct bytes){ 0 };
	}
}

static void same_module(void)
{
	want_same(&plain);
}

static void same_garbage(void)
{
	struct bytes bad = { 0 };

	bytes_add(&bad, plain.data, plain.size);
	bad.data[0] ^= 1;
	want_same(&bad);
	free(bad.data);
}

/* A log of before is asked for in the child, which makes a module too. */
static void forked(void)
{
	ze_module_desc_t desc = desc_of(&plain);
	ze_module_build_log_handle_t log = NULL;
	ze_module_handle_t module = NULL;
	pid_t child;

	(void)zeModuleCreate(context, devices[0], &desc, &module, &log);
	fflush(out);
	child = fork();
	if (!child) {
		tell_log(log);
		(void)zeModuleDestroy(module);
		create("in a child", &desc);
		fflush(out);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	tell_log(log);
	(void)zeModuleDestroy(module);
	(void)zeModuleBuildLogDestroy(log);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- What there is in the process ---------------------------------------------- */

static unsigned count_in(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n - 2; /* "." and ".." */
}

/* Threads, descriptors, and what becomes of signals, but for those that libc
   keeps for threads. */
static void tell_state(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long long signals;
	char line[256], name[8];

	fprintf(out, "state: %u %u\n", count_in("/proc/self/task"),
		count_in("/proc/self/fd"));
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "Sig%3s: %llx", name, &signals) == 2)
			fprintf(out, "  %s %llx\n", name, signals & 0x7fffffff);
	if (status)
		fclose(status);
}

/* When what may go on behind the calls is through. */
static void tell_state_late(void)
{
	const uint64_t end = now_ns() + (uint64_t)10 * 1000 * 1000 * 1000;

	while (count_in("/proc/self/task") > 1 && now_ns() < end)
		sched_yield();
	tell_state();
}

/* ---- Times -------------------------------------------------------------------- */

/* Modules that differ in a constant, so that none is there before it is made;
   one more, first, which has the compiler load itself. */
static void measure(uint32_t n)
{
	uint32_t id = SPEC_ID, value;
	const void *values[] = { &value };
	const ze_module_constants_t set = { 1, &id, values };
	ze_module_desc_t desc = desc_of(&special);
	ze_module_handle_t module = NULL;
	uint64_t began;

	desc.pConstants = &set;
	for (value = 1; value <= n + 1; value++) {
		began = now_ns();
		if (zeModuleCreate(context, devices[0], &desc, &module, NULL))
			abort();
		if (value > 1)
			fprintf(out, "%llu\n",
				(unsigned long long)(now_ns() - began));
		(void)zeModuleDestroy(module);
	}
}

/* ---- Main --------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*body)(void);
} scripts[] = {
	{ "one", one },
	{ "flags", flags },
	{ "constants", constants },
	{ "program", program },
	{ "garbage", garbage },
	{ "native", native },
	{ "unknown", unknown },
	{ "ask", ask },
	{ "each-device", each_device },
	{ "part", part },
	{ "wrong", wrong },
	{ "without-log", without_log },
	{ "destroy-at-once", destroy_at_once },
	{ "destroy-context", destroy_context },
	{ "threads", threads },
	{ "same", same_module },
	{ "same-garbage", same_garbage },
	{ "forked", forked },
	{ "state", tell_state },
	{ "state-late", tell_state_late },
};

static int run(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (!strcmp(scripts[i].name, name)) {
			scripts[i].body();
			return 0;
		}
	return 1;
}

static int take(const char *spirv)
{
	uint8_t room[65536];
	FILE *file;

	if (!strcmp(spirv, "-")) {
		bytes_add(&plain, SMALL, sizeof(SMALL));
		return 0;
	}
	file = fopen(spirv, "rb");
	if (!file)
		return 1;
	bytes_add(&plain, room, fread(room, 1, sizeof(room), file));
	fclose(file);
	return 0;
}

static int prepare(const char *spirv)
{
	const ze_context_desc_t desc = {
		.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC,
	};
	uint32_t n = 1, n_devices = 3;
	ze_driver_handle_t driver;

	if (take(spirv))
		return 1;
	make_special();
	return zeInit(0) || zeDriverGet(&n, &driver) ||
	       zeDeviceGet(driver, &n_devices, devices) ||
	       zeContextCreate(driver, &desc, &context);
}

int main(int argc, char **argv)
{
	char end;
	int i, failed = 0;

	if (argc == 3 && !strcmp(argv[1], "spirv"))
		return make_spirv(argv[2]);
	if (argc < 4)
		return 2;
	out = fopen(argv[2], "w");
	if (!out || prepare(argv[3]))
		return 3;
	if (argc == 5 && !strcmp(argv[1], "time"))
		measure((uint32_t)atoi(argv[4]));
	else
		for (i = 4; i < argc && !failed; i++)
			failed = run(argv[i]);
	if (context)
		(void)zeContextDestroy(context);
	fclose(out);
	free(plain.data);
	free(special.data);
	fflush(stdout);
	close(STDOUT_FILENO);
	while (read(STDIN_FILENO, &end, 1) > 0)
		;
	return failed;
}

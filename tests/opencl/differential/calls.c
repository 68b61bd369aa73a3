/* SPDX-License-Identifier: MIT */

/*
 * A program that asks everything of the programs in a list, one line for each
 * answer, and knows nothing of a cache.  Handles and binaries are not printed,
 * only whether they are right or there.
 *
 *	differential-calls LIST
 *
 * The list has lines of a word and its value, and a case ends with "end":
 *
 *	case NAME
 *	source FILE	the program, or one of those that are linked
 *	options TEXT
 *	header NAME FILE	a header program: compile and link
 *	link TEXT	compile and link, with these options
 *	il		sources are IL, but for the header of a module
 *	constant ID VALUE	a specialisation constant of type int
 *	launch		all kernels whose arguments are buffers, images,
 *			samplers and numbers
 *	notify		build, compile and link with callbacks
 *
 * Each case has a process of its own, so one that dies says so and no more.
 */

#include <ctype.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#define DEVICES_MAX   4
#define FILES_MAX     8
#define CONSTANTS_MAX 4
#define NOTICES_MAX   16
#define KERNELS_MAX   128
#define ARGS_MAX      64
#define BUFFER_SIZE   ((size_t)256 << 10)
#define SHOWN_MAX     160
#define TIMEOUT_S     180

struct file {
	char name[128];
	char path[1024];
};

struct one_case {
	char name[256];
	char options[4096], link_options[1024];
	struct file sources[FILES_MAX], headers[FILES_MAX];
	cl_uint n_sources, n_headers;
	struct {
		cl_uint id;
		cl_int value;
	} constants[CONSTANTS_MAX];
	cl_uint n_constants;
	int is_il, is_linked, is_launched, is_notified;
};

static cl_context context;
static cl_device_id devices[DEVICES_MAX];
static cl_uint n_devices;
static cl_command_queue queue;
/* What would hang or abort there is not asked. */
static int is_rusticl, is_oclgrind;

/* ---- Answers -------------------------------------------------------------- */

static uint64_t digest(const void *data, size_t size)
{
	const unsigned char *p = data;
	uint64_t hash = 0xcbf29ce484222325u;
	size_t i;

	for (i = 0; i < size; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
	return hash;
}

static void say(const char *what, long long value)
{
	printf("%s: %lld\n", what, value);
}

/* How an answer is to be shown. */
enum shown { BYTES, HANDLES, PRESENCE };

struct question {
	cl_int (*ask)(const struct question *question, cl_uint what,
		      size_t size, void *value, size_t *told);
	cl_program program;
	cl_kernel kernel;
	cl_device_id device;
	cl_uint argument;
	const void *input;
	size_t input_size;
};

static cl_int of_program(const struct question *q, cl_uint what, size_t size,
			 void *value, size_t *told)
{
	return clGetProgramInfo(q->program, what, size, value, told);
}

static cl_int of_build(const struct question *q, cl_uint what, size_t size,
		       void *value, size_t *told)
{
	return clGetProgramBuildInfo(q->program, q->device, what, size, value,
				     told);
}

static cl_int of_kernel(const struct question *q, cl_uint what, size_t size,
			void *value, size_t *told)
{
	return clGetKernelInfo(q->kernel, what, size, value, told);
}

static cl_int of_argument(const struct question *q, cl_uint what, size_t size,
			  void *value, size_t *told)
{
	return clGetKernelArgInfo(q->kernel, q->argument, what, size, value,
				  told);
}

static cl_int of_group(const struct question *q, cl_uint what, size_t size,
		       void *value, size_t *told)
{
	return clGetKernelWorkGroupInfo(q->kernel, q->device, what, size, value,
					told);
}

static cl_int of_subgroup(const struct question *q, cl_uint what, size_t size,
			  void *value, size_t *told)
{
	return clGetKernelSubGroupInfo(q->kernel, q->device, what,
				       q->input_size, q->input, size, value,
				       told);
}

/* "context", "device 1", "program": which of those that we know this is. */
static const char *name_of(const struct question *q, const void *handle)
{
	static char name[32];
	cl_uint i;

	if (!handle)
		return "NULL";
	if (handle == context)
		return "context";
	if (handle == q->program)
		return "program";
	for (i = 0; i < n_devices; i++)
		if (handle == devices[i]) {
			snprintf(name, sizeof(name), "device %u", i);
			return name;
		}
	return "another";
}

static void show(const struct question *q, enum shown shown,
		 const unsigned char *data, size_t size)
{
	size_t i;
	void *handle;

	if (shown == HANDLES) {
		for (i = 0; i + sizeof(handle) <= size; i += sizeof(handle)) {
			memcpy(&handle, data + i, sizeof(handle));
			printf(" %s", name_of(q, handle));
		}
		return;
	}
	if (size <= 16) {
		for (i = 0; i < size; i++)
			printf(" %02x", data[i]);
		return;
	}
	printf(" %016" PRIx64 " \"", digest(data, size));
	for (i = 0; i < size && i < SHOWN_MAX && data[i]; i++)
		putchar(isprint(data[i]) ? data[i] : '.');
	putchar('"');
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* rusticl lists its kernels in another order in each process. */
static void sort_names(char *text)
{
	char *copy = strdup(text), *rest = copy, *names[KERNELS_MAX], *name;
	size_t n = 0, i;

	while (n < KERNELS_MAX && (name = strsep(&rest, ";")))
		names[n++] = name;
	qsort(names, n, sizeof(names[0]), by_text);
	for (*text = '\0', i = 0; i < n; i++) {
		if (i)
			strcat(text, ";");
		strcat(text, names[i]);
	}
	free(copy);
}

/* In every way there is: whole, its size only, one byte short, and no room. */
static void ask(const struct question *q, const char *name, cl_uint what,
		enum shown shown)
{
	size_t size = 0, told = 77;
	unsigned char *data;
	cl_int result = q->ask(q, what, 0, NULL, &size);

	printf("%s %#x: size only %d, %zu\n", name, what, result, size);
	if (size > ((size_t)64 << 20))
		size = 0;
	data = calloc(1, size + 64);
	result = q->ask(q, what, size + 64, data, &told);
	printf("  whole %d, %zu:", result, told);
	if (!result && is_rusticl && what == CL_PROGRAM_KERNEL_NAMES)
		sort_names((char *)data);
	if (!result)
		show(q, shown, data, size);
	printf("\n");
	memset(data, 0, size + 64);
	if (size) {
		told = 77;
		result = q->ask(q, what, size - 1, data, &told);
		printf("  short %d, %zu, %016" PRIx64 "\n", result, told,
		       digest(data, size));
	}
	result = q->ask(q, what, 0, data, NULL);
	printf("  no room %d\n", result);
	printf("  nothing %d\n", q->ask(q, what, 0, NULL, NULL));
	free(data);
}

/* ---- Programs ------------------------------------------------------------- */

/* After a build that failed Oclgrind tells the size of what was there before;
   that of what came from an entry is nowhere then (the layer's README). */
static int is_stale(const struct question *q, cl_uint what)
{
	cl_build_status status = CL_BUILD_SUCCESS;

	if (is_oclgrind && what == CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE)
		clGetProgramBuildInfo(q->program, q->device,
				      CL_PROGRAM_BUILD_STATUS, sizeof(status),
				      &status, NULL);
	return status == CL_BUILD_ERROR;
}

static void ask_program(cl_program program)
{
	static const cl_uint whats[] = { CL_PROGRAM_NUM_DEVICES,
					 CL_PROGRAM_REFERENCE_COUNT,
					 CL_PROGRAM_SOURCE,
					 CL_PROGRAM_NUM_KERNELS,
					 CL_PROGRAM_KERNEL_NAMES,
					 CL_PROGRAM_IL,
					 CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT,
					 CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT,
					 0,
					 0x115f,
					 0x116c };
	static const cl_uint of_builds[] = {
		CL_PROGRAM_BUILD_STATUS,
		CL_PROGRAM_BUILD_OPTIONS,
		CL_PROGRAM_BUILD_LOG,
		CL_PROGRAM_BINARY_TYPE,
		CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
		0,
		0x1180,
		0x1186
	};
	struct question q = { .ask = of_program, .program = program };
	cl_uint i, d;

	for (i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		ask(&q, "program", whats[i], BYTES);
	ask(&q, "program", CL_PROGRAM_CONTEXT, HANDLES);
	ask(&q, "program", CL_PROGRAM_DEVICES, HANDLES);
	q.ask = of_build;
	for (d = 0; d <= n_devices; d++) {
		q.device = d < n_devices ? devices[d] : NULL;
		for (i = 0; i < sizeof(of_builds) / sizeof(of_builds[0]); i++)
			if (!is_stale(&q, of_builds[i]))
				ask(&q, "build", of_builds[i], BYTES);
	}
}

static int has_bytes(const unsigned char *data, size_t size)
{
	while (size && !data[size - 1])
		size--;
	return size > 0;
}

static void ask_binaries(cl_program program)
{
	size_t sizes[DEVICES_MAX] = { 0 }, told = 0;
	unsigned char *binaries[DEVICES_MAX] = { NULL };
	cl_uint i, n = 0;

	say("binaries", clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES,
					 sizeof(n), &n, NULL));
	say("  sizes", clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					sizeof(sizes), sizes, &told));
	say("  told", (long long)told);
	say("  short",
	    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, 1, sizes, NULL));
	for (i = 0; i < n && i < DEVICES_MAX; i++)
		binaries[i] = calloc(1, sizes[i] + 1);
	if (!is_rusticl)
		say("  short", clGetProgramInfo(program, CL_PROGRAM_BINARIES, 1,
						binaries, NULL));
	say("  fetched",
	    clGetProgramInfo(program, CL_PROGRAM_BINARIES,
			     n * sizeof(binaries[0]), binaries, &told));
	say("  told", (long long)told);
	for (i = 0; i < n && i < DEVICES_MAX; i++) {
		say("  has some", sizes[i] > 0);
		say("  has bytes", has_bytes(binaries[i], sizes[i]));
		free(binaries[i]);
	}
}

/* ---- Kernels -------------------------------------------------------------- */

static void ask_arguments(cl_kernel kernel, cl_program program)
{
	struct question q = { .ask = of_argument,
			      .kernel = kernel,
			      .program = program };
	cl_uint i, what, n = 0;

	clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL);
	for (i = 0; i <= n && i < ARGS_MAX; i++) {
		q.argument = i;
		for (what = CL_KERNEL_ARG_ADDRESS_QUALIFIER;
		     what <= CL_KERNEL_ARG_NAME + 1; what++)
			ask(&q, "argument", what, BYTES);
	}
}

static void ask_groups(cl_kernel kernel, cl_program program)
{
	static const size_t group[3] = { 4, 1, 1 }, count = 2;
	struct question q = { .kernel = kernel, .program = program };
	cl_uint d, what;

	for (d = 0; d <= n_devices; d++) {
		q.device = d < n_devices ? devices[d] : NULL;
		q.ask = of_group;
		for (what = CL_KERNEL_WORK_GROUP_SIZE;
		     what <= CL_KERNEL_GLOBAL_WORK_SIZE + 1; what++)
			ask(&q, "work-group", what, BYTES);
		if (is_oclgrind)
			continue;
		q.ask = of_subgroup;
		q.input = group;
		q.input_size = sizeof(group);
		ask(&q, "sub-group", CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
		    BYTES);
		ask(&q, "sub-group", CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE,
		    BYTES);
		q.input = &count;
		q.input_size = sizeof(count);
		ask(&q, "sub-group", CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT,
		    BYTES);
		q.input = NULL;
		q.input_size = 0;
		ask(&q, "sub-group", CL_KERNEL_MAX_NUM_SUB_GROUPS, BYTES);
		ask(&q, "sub-group", CL_KERNEL_COMPILE_NUM_SUB_GROUPS, BYTES);
	}
}

static void ask_kernel(cl_kernel kernel, cl_program program)
{
	struct question q = { .ask = of_kernel,
			      .kernel = kernel,
			      .program = program };

	ask(&q, "kernel", CL_KERNEL_FUNCTION_NAME, BYTES);
	ask(&q, "kernel", CL_KERNEL_NUM_ARGS, BYTES);
	ask(&q, "kernel", CL_KERNEL_REFERENCE_COUNT, BYTES);
	ask(&q, "kernel", CL_KERNEL_ATTRIBUTES, BYTES);
	ask(&q, "kernel", 0x1196, BYTES);
	ask(&q, "kernel", CL_KERNEL_CONTEXT, HANDLES);
	ask(&q, "kernel", CL_KERNEL_PROGRAM, HANDLES);
	ask_arguments(kernel, program);
	ask_groups(kernel, program);
}

/* ---- Launches ------------------------------------------------------------- */

/* The bytes of a number or vector; 0: something else. */
static size_t size_of_type(const char *type)
{
	static const struct {
		const char *name;
		size_t size;
	} TYPES[] = { { "char", 1 },   { "uchar", 1 }, { "short", 2 },
		      { "ushort", 2 }, { "half", 2 },  { "int", 4 },
		      { "uint", 4 },   { "float", 4 }, { "long", 8 },
		      { "ulong", 8 },  { "double", 8 } };
	size_t i, size;
	unsigned long n;
	char *end;

	for (i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
		size = strlen(TYPES[i].name);
		if (strncmp(type, TYPES[i].name, size))
			continue;
		if (!type[size])
			return TYPES[i].size;
		n = strtoul(type + size, &end, 10);
		if (end != type + size && !*end && n >= 2 && n <= 16)
			return TYPES[i].size * (n == 3 ? 4 : n);
	}
	return 0;
}

/* Small numbers that all types can hold: what is divided by is not 0. */
static void fill(unsigned char *data, size_t size, const char *type)
{
	size_t i;

	for (i = 0; i + 8 <= size; i += 8)
		if (!strncmp(type, "double", 6)) {
			double value = 1.0 + (double)(i % 56) / 8;

			memcpy(data + i, &value, sizeof(value));
		} else if (!strncmp(type, "float", 5)) {
			float pair[2] = { 1.0f + (float)(i % 56) / 8, 2.0f };

			memcpy(data + i, pair, sizeof(pair));
		} else {
			uint32_t pair[2] = { 1 + i / 8 % 7, 2 };

			memcpy(data + i, pair, sizeof(pair));
		}
}

/* A number's value: 4, of whatever type. */
static void fill_number(unsigned char *data, size_t size, const char *type)
{
	const float one_float = 4.0f;
	const double one_double = 4.0;
	const uint16_t one_half = 0x4400;
	size_t i, each = 0;

	if (!strncmp(type, "float", 5))
		for (; each < size; each += 4)
			memcpy(data + each, &one_float, 4);
	else if (!strncmp(type, "double", 6))
		for (; each < size; each += 8)
			memcpy(data + each, &one_double, 8);
	else if (!strncmp(type, "half", 4))
		for (; each < size; each += 2)
			memcpy(data + each, &one_half, 2);
	else
		for (i = 0; i < size; i += strstr(type, "long")	   ? 8
					   : strstr(type, "int")   ? 4
					   : strstr(type, "short") ? 2
								   : 1)
			data[i] = 4;
}

/* What a kernel is given; all zeros: a number, or local memory. */
struct argument {
	cl_mem memory;
	cl_sampler sampler;
	size_t region[3]; /* of an image */
};

static const struct image {
	const char *type;
	cl_mem_object_type kind;
	size_t region[3];
} IMAGES[] = {
	{ "image1d_t", CL_MEM_OBJECT_IMAGE1D, { 16, 1, 1 } },
	{ "image2d_t", CL_MEM_OBJECT_IMAGE2D, { 16, 4, 1 } },
	{ "image2d_array_t", CL_MEM_OBJECT_IMAGE2D_ARRAY, { 16, 4, 2 } },
	{ "image3d_t", CL_MEM_OBJECT_IMAGE3D, { 16, 4, 2 } },
};

static cl_mem make_image(const struct image *image, cl_int *result)
{
	const cl_image_format format = { CL_RGBA, CL_FLOAT };
	const size_t *region = image->region;
	cl_image_desc description = { .image_type = image->kind,
				      .image_width = region[0] };
	unsigned char *data = malloc(BUFFER_SIZE);
	cl_mem memory;

	if (image->kind != CL_MEM_OBJECT_IMAGE1D)
		description.image_height = region[1];
	if (image->kind == CL_MEM_OBJECT_IMAGE3D)
		description.image_depth = region[2];
	if (image->kind == CL_MEM_OBJECT_IMAGE2D_ARRAY)
		description.image_array_size = region[2];
	fill(data, BUFFER_SIZE, "float4");
	memory =
		clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
			      &format, &description, data, result);
	free(data);
	return memory;
}

static cl_mem make_buffer(const char *type, cl_int *result)
{
	unsigned char *data = malloc(BUFFER_SIZE);
	cl_mem memory;

	fill(data, BUFFER_SIZE, type);
	memory = clCreateBuffer(context,
				CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
				BUFFER_SIZE, data, result);
	free(data);
	return memory;
}

/* A buffer or an image; what it is not for, or NULL. */
static const char *set_memory(cl_kernel kernel, cl_uint i, const char *type,
			      struct argument *out)
{
	const struct image *image = NULL;
	cl_int result;
	size_t k;

	for (k = 0; k < sizeof(IMAGES) / sizeof(IMAGES[0]); k++)
		if (!strcmp(type, IMAGES[k].type))
			image = &IMAGES[k];
	if (!image && !strchr(type, '*'))
		return "no memory";
	out->memory =
		image ? make_image(image, &result) : make_buffer(type, &result);
	if (result) {
		out->memory = NULL;
		return "memory";
	}
	if (image)
		memcpy(out->region, image->region, sizeof(out->region));
	return clSetKernelArg(kernel, i, sizeof(out->memory), &out->memory)
		       ? "argument"
		       : NULL;
}

static const char *set_sampler(cl_kernel kernel, cl_uint i,
			       struct argument *out)
{
	cl_int result;

	out->sampler =
		clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE,
				CL_FILTER_NEAREST, &result);
	return result || clSetKernelArg(kernel, i, sizeof(out->sampler),
					&out->sampler)
		       ? "sampler"
		       : NULL;
}

/* Why it cannot be set, or NULL. */
static const char *set_argument(cl_kernel kernel, cl_uint i,
				struct argument *out)
{
	unsigned char number[128] = { 0 };
	cl_kernel_arg_address_qualifier where;
	char type[256] = { 0 };
	size_t size;

	if (clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
			       sizeof(where), &where, NULL) ||
	    clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME,
			       sizeof(type) - 1, type, NULL))
		return "nothing is told";
	/* CLBlast's names of its own, in single precision. */
	if (!strncmp(type, "real", 4))
		strcpy(type, strchr(type, '*') ? "float*" : "float");
	if (where == CL_KERNEL_ARG_ADDRESS_LOCAL)
		return clSetKernelArg(kernel, i, 4096, NULL) ? "local" : NULL;
	if (!strcmp(type, "sampler_t"))
		return set_sampler(kernel, i, out);
	if (where != CL_KERNEL_ARG_ADDRESS_PRIVATE)
		return set_memory(kernel, i, type, out);
	size = size_of_type(type);
	if (!size)
		return "a type of its own";
	fill_number(number, size, type);
	return clSetKernelArg(kernel, i, size, number) ? "number" : NULL;
}

static void show_memory(cl_uint i, const struct argument *argument)
{
	const size_t origin[3] = { 0 }, *region = argument->region;
	unsigned char *data = calloc(1, BUFFER_SIZE);
	cl_int result;

	if (region[0])
		result = clEnqueueReadImage(queue, argument->memory, CL_TRUE,
					    origin, region, 0, 0, data, 0, NULL,
					    NULL);
	else
		result =
			clEnqueueReadBuffer(queue, argument->memory, CL_TRUE, 0,
					    BUFFER_SIZE, data, 0, NULL, NULL);
	printf("  %s %u: %d, %016" PRIx64 "\n", region[0] ? "image" : "buffer",
	       i, result, digest(data, BUFFER_SIZE));
	free(data);
}

static void launch(cl_kernel kernel)
{
	size_t range[3] = { 0 }, given[3] = { 8, 1, 1 };
	struct argument arguments[ARGS_MAX] = { 0 };
	const char *why = NULL;
	cl_uint i, n = 0;

	clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL);
	clGetKernelWorkGroupInfo(kernel, devices[0],
				 CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
				 sizeof(range), range, NULL);
	if (range[0])
		memcpy(given, range, sizeof(given));
	for (i = 0; i < n && i < ARGS_MAX && !why; i++)
		why = set_argument(kernel, i, &arguments[i]);
	if (why) {
		printf("  not launched: %s\n", why);
	} else {
		say("  launch",
		    clEnqueueNDRangeKernel(queue, kernel, 3, NULL, given,
					   range[0] ? given : NULL, 0, NULL,
					   NULL));
		say("  finish", clFinish(queue));
	}
	for (i = 0; i < n && i < ARGS_MAX; i++) {
		if (arguments[i].memory && !why)
			show_memory(i, &arguments[i]);
		if (arguments[i].memory)
			clReleaseMemObject(arguments[i].memory);
		if (arguments[i].sampler)
			clReleaseSampler(arguments[i].sampler);
	}
}

/* ---- A case --------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
/* In the order in which they came. */
static struct notice {
	cl_program program;
	void *data;
} notices[NOTICES_MAX];
static unsigned n_notices;

static void CL_CALLBACK on_done(cl_program program, void *data)
{
	pthread_mutex_lock(&mutex);
	if (n_notices < NOTICES_MAX)
		notices[n_notices] = (struct notice){ program, data };
	n_notices++;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
}

/* The n-th, which should be of this program, with this data. */
static void await_notice(unsigned n, cl_program program, const void *data)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += TIMEOUT_S;
	pthread_mutex_lock(&mutex);
	while (n_notices < n && !pthread_cond_timedwait(&cond, &mutex, &end))
		;
	say("noticed", n_notices);
	say("its program", notices[n - 1].program == program);
	say("its data", notices[n - 1].data == data);
	pthread_mutex_unlock(&mutex);
}

/* A driver's thread lets go of what it has built a little later. */
static void settle(cl_program program)
{
	cl_uint n = 0;
	int i;

	for (i = 0; i < 10000 && n != 1; i++) {
		clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof(n),
				 &n, NULL);
		if (n != 1)
			poll(NULL, 0, 1);
	}
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	int c;

	while (file && (c = getc(file)) != EOF)
		putc(c, out);
	if (!file)
		printf("no file\n");
	else
		fclose(file);
	fclose(out);
	return text;
}

/* The five words that begin a module, then the text. */
static cl_program make_il(const char *text, cl_int *result)
{
	static const uint32_t words[5] = { 0x07230203, 0x00010000, 0, 9, 0 };
	size_t size = sizeof(words) + strlen(text);
	unsigned char *il = malloc(size);
	cl_program program;

	memcpy(il, words, sizeof(words));
	memcpy(il + sizeof(words), text, size - sizeof(words));
	program = clCreateProgramWithIL(context, il, size, result);
	free(il);
	return program;
}

static cl_program make(const struct one_case *one, const struct file *file)
{
	char *text = read_file(file->path);
	const char *string = text;
	cl_int result = 1;
	cl_program program =
		one->is_il ? make_il(text, &result)
			   : clCreateProgramWithSource(context, 1, &string,
						       NULL, &result);
	cl_uint i;

	say("create", result);
	free(text);
	for (i = 0; program && i < one->n_constants; i++)
		say("constant", clSetProgramSpecializationConstant(
					program, one->constants[i].id,
					sizeof(one->constants[i].value),
					&one->constants[i].value));
	return program;
}

/* With a callback or without; it is called for what was begun. */
static void compile(const struct one_case *one, cl_program part,
		    const cl_program *headers, const char **names)
{
	unsigned n = n_notices + 1;
	cl_int result = clCompileProgram(
		part, 0, NULL, one->options, one->n_headers,
		one->n_headers ? headers : NULL, one->n_headers ? names : NULL,
		one->is_notified ? on_done : NULL,
		one->is_notified ? &notices[n - 1] : NULL);

	say("compile", result);
	if (one->is_notified && !result) {
		await_notice(n, part, &notices[n - 1]);
		settle(part);
	}
	ask_program(part);
}

static cl_program link_all(const struct one_case *one, const cl_program *parts)
{
	unsigned n = n_notices + 1;
	cl_int result = 1;
	cl_program linked = clLinkProgram(
		context, 0, NULL, one->link_options, one->n_sources, parts,
		one->is_notified ? on_done : NULL,
		one->is_notified ? &notices[n - 1] : NULL, &result);

	say("link", result);
	if (one->is_notified && !result) {
		await_notice(n, linked, &notices[n - 1]);
		settle(linked);
	}
	return linked;
}

/* The program, compiled and linked from its parts. */
static cl_program link_parts(const struct one_case *one)
{
	cl_program parts[FILES_MAX], headers[FILES_MAX], linked;
	const char *names[FILES_MAX];
	cl_uint i;

	for (i = 0; i < one->n_headers; i++) {
		headers[i] = make(one, &one->headers[i]);
		names[i] = one->headers[i].name;
	}
	for (i = 0; i < one->n_sources; i++) {
		parts[i] = make(one, &one->sources[i]);
		compile(one, parts[i], headers, names);
	}
	linked = link_all(one, parts);
	for (i = 0; i < one->n_sources; i++) {
		ask_program(parts[i]);
		ask_binaries(parts[i]);
		say("release", clReleaseProgram(parts[i]));
	}
	for (i = 0; i < one->n_headers; i++)
		say("release", clReleaseProgram(headers[i]));
	return linked;
}

static cl_program build(const struct one_case *one)
{
	cl_program program = make(one, &one->sources[0]);

	if (!program)
		return NULL;
	ask_program(program);
	if (one->is_notified) {
		say("build", clBuildProgram(program, 0, NULL, one->options,
					    on_done, &queue));
		await_notice(1, program, &queue);
		settle(program);
	} else {
		say("build",
		    clBuildProgram(program, 0, NULL, one->options, NULL, NULL));
	}
	return program;
}

static int by_name(const void *a, const void *b)
{
	char one[256] = "", two[256] = "";

	clGetKernelInfo(*(const cl_kernel *)a, CL_KERNEL_FUNCTION_NAME,
			sizeof(one) - 1, one, NULL);
	clGetKernelInfo(*(const cl_kernel *)b, CL_KERNEL_FUNCTION_NAME,
			sizeof(two) - 1, two, NULL);
	return strcmp(one, two);
}

static void use_kernels(cl_program program, int is_launched)
{
	cl_kernel kernels[KERNELS_MAX] = { NULL }, again;
	char name[256];
	cl_uint i, n = 0;
	cl_int result;

	say("count", clCreateKernelsInProgram(program, 0, NULL, &n));
	say("kernels", n);
	say("create",
	    clCreateKernelsInProgram(program, KERNELS_MAX, kernels, &n));
	if (n > KERNELS_MAX || !kernels[0])
		return;
	say("too few", clCreateKernelsInProgram(program, n - 1, kernels, NULL));
	qsort(kernels, n, sizeof(kernels[0]), by_name);
	for (i = 0; i < n; i++) {
		ask_kernel(kernels[i], program);
		memset(name, 0, sizeof(name));
		clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME,
				sizeof(name) - 1, name, NULL);
		again = clCreateKernel(program, name, &result);
		say(name, result);
		if (is_launched && again)
			launch(again);
		if (again)
			say("release", clReleaseKernel(again));
	}
	again = clCreateKernel(program, "no_such_kernel", &result);
	say("no such", result);
	ask_binaries(program);
	say("build while they live",
	    clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	for (i = 0; i < n; i++)
		say("release", clReleaseKernel(kernels[i]));
}

static void run_case(const struct one_case *one)
{
	cl_platform_id platform;
	cl_program program;
	char name[64] = { 0 };
	cl_int result = 1;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices,
			   &n_devices)) {
		printf("no devices\n");
		fflush(stdout);
		_exit(2);
	}
	clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name) - 1, name,
			  NULL);
	is_rusticl = !strcmp(name, "rusticl");
	is_oclgrind = !strcmp(name, "Oclgrind");
	if (n_devices > DEVICES_MAX)
		n_devices = DEVICES_MAX;
	context =
		clCreateContext(NULL, n_devices, devices, NULL, NULL, &result);
	say("context", result);
	queue = clCreateCommandQueue(context, devices[0], 0, &result);
	say("queue", result);
	program = one->is_linked ? link_parts(one) : build(one);
	if (program) {
		ask_program(program);
		use_kernels(program, one->is_launched);
		ask_binaries(program);
		ask_program(program);
		say("release", clReleaseProgram(program));
	}
	say("notices in all", n_notices);
	clReleaseCommandQueue(queue);
	say("release", clReleaseContext(context));
}

/* ---- The list ------------------------------------------------------------- */

static void run_apart(const struct one_case *one)
{
	int status = 0;
	pid_t pid;

	printf("case %s\n", one->name);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(TIMEOUT_S);
		run_case(one);
		exit(0);
	}
	while (pid > 0 && waitpid(pid, &status, 0) != pid)
		;
	printf("ends %d\n", WIFEXITED(status) ? WEXITSTATUS(status)
					      : 128 + WTERMSIG(status));
	fflush(stdout);
}

static void take_file(struct file *files, cl_uint *n, const char *name,
		      const char *path)
{
	if (*n == FILES_MAX)
		abort();
	snprintf(files[*n].name, sizeof(files[*n].name), "%s", name);
	snprintf(files[*n].path, sizeof(files[*n].path), "%s", path);
	++*n;
}

static void take_line(struct one_case *one, char *line)
{
	char *value = strchr(line, ' '), *path;

	if (value)
		*value++ = 0;
	else
		value = line + strlen(line);
	if (!strcmp(line, "case")) {
		snprintf(one->name, sizeof(one->name), "%s", value);
	} else if (!strcmp(line, "source")) {
		take_file(one->sources, &one->n_sources, "", value);
	} else if (!strcmp(line, "header")) {
		path = strchr(value, ' ');
		if (!path)
			abort();
		*path++ = 0;
		take_file(one->headers, &one->n_headers, value, path);
		one->is_linked = 1;
	} else if (!strcmp(line, "options")) {
		snprintf(one->options, sizeof(one->options), "%s", value);
	} else if (!strcmp(line, "link")) {
		snprintf(one->link_options, sizeof(one->link_options), "%s",
			 value);
		one->is_linked = 1;
	} else if (!strcmp(line, "il")) {
		one->is_il = 1;
	} else if (!strcmp(line, "constant")) {
		if (one->n_constants == CONSTANTS_MAX ||
		    sscanf(value, "%u %d", &one->constants[one->n_constants].id,
			   &one->constants[one->n_constants].value) != 2)
			abort();
		one->n_constants++;
	} else if (!strcmp(line, "launch")) {
		one->is_launched = 1;
	} else if (!strcmp(line, "notify")) {
		one->is_notified = 1;
	}
}

int main(int argc, char **argv)
{
	static struct one_case one;
	char *list, *rest, *line;

	if (argc != 2) {
		fprintf(stderr, "usage: differential-calls LIST\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	list = rest = read_file(argv[1]);
	while ((line = strsep(&rest, "\n"))) {
		if (strcmp(line, "end")) {
			take_line(&one, line);
			continue;
		}
		run_apart(&one);
		memset(&one, 0, sizeof(one));
	}
	free(list);
	return 0;
}

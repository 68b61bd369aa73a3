/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_ICD_H
#define KI_TESTS_ICD_H

/*
 * The inside of the driver stand-in (README.md says what it is for).
 *
 * Every handle begins with the dispatch table that the loader reads, then its
 * kind and its count.  One mutex, `icd_mutex`, guards what can change in
 * contexts, programs and kernels; it is never held across a compilation, a
 * kernel's run or a callback.  A compiled program, `struct icd_unit`, never
 * changes once made (but for its variables) and is counted, so kernels keep
 * the one they came from.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl_icd.h>
#include <CL/cl_ext.h>

#define ICD_DEVICES_MAX	  16
#define ICD_VARIABLES_MAX 8

/* ---- Handles ------------------------------------------------------------ */

enum icd_kind {
	ICD_PLATFORM = 0x6b696c01,
	ICD_DEVICE,
	ICD_CONTEXT,
	ICD_QUEUE,
	ICD_MEM,
	ICD_PROGRAM,
	ICD_KERNEL,
	ICD_EVENT,
};

struct icd_head {
	const cl_icd_dispatch *dispatch;
	enum icd_kind kind;
	atomic_uint refs;
};

extern const cl_icd_dispatch icd_dispatch;
extern pthread_mutex_t icd_mutex;

/* A zeroed handle with one reference, NULL without memory. */
void *icd_new(enum icd_kind kind, size_t size);
bool icd_is(const void *handle, enum icd_kind kind);
void icd_ref(void *handle);
/* True when the last reference went: the caller destroys the handle. */
bool icd_unref(void *handle);

/* Callbacks of one handle, called newest first. */
struct icd_callback {
	struct icd_callback *next;
	void(CL_CALLBACK *call)(void *handle, void *arg);
	void *arg;
};
cl_int icd_callback_add(struct icd_callback **list, void *call, void *arg);
void icd_callbacks_run(struct icd_callback *list, void *handle);

struct _cl_platform_id {
	struct icd_head head;
	unsigned index;
	cl_uint n_devices;
	cl_device_id devices[ICD_DEVICES_MAX];
	char name[64];
};

struct _cl_device_id {
	struct icd_head head;
	cl_platform_id platform;
	cl_device_id parent;
	cl_uint n_units;
	cl_device_partition_property partition[ICD_DEVICES_MAX + 3];
	size_t partition_size;
	char name[64];
};

struct _cl_context {
	struct icd_head head;
	cl_uint n_devices;
	cl_device_id devices[ICD_DEVICES_MAX];
	cl_context_properties *properties;
	size_t properties_size;
	/* Under icd_mutex. */
	struct icd_callback *callbacks;
};
void icd_context_unref(cl_context context);
/* The device's place among the context's, or -1. */
int icd_context_find(cl_context context, cl_device_id device);

struct _cl_command_queue {
	struct icd_head head;
	cl_context context;
	cl_device_id device;
	cl_command_queue_properties properties;
};

struct _cl_mem {
	struct icd_head head;
	cl_context context;
	cl_mem_flags flags;
	size_t size;
	size_t origin;
	void *host;
	cl_mem parent;
	unsigned char *data;
	/* Under icd_mutex. */
	struct icd_callback *callbacks;
};

struct _cl_event {
	struct icd_head head;
	cl_context context;
	cl_command_queue queue;
	cl_command_type type;
	cl_ulong time_ns;
};

/* ---- The compiler ------------------------------------------------------- */

struct icd_text {
	char *data; /* NUL-ended; NULL while empty */
	size_t size;
	size_t room;
	bool failed; /* out of memory, once */
};
void icd_text_add(struct icd_text *text, const void *data, size_t size);
void icd_text_puts(struct icd_text *text, const char *string);
__attribute__((format(printf, 2, 3))) void icd_text_printf(
	struct icd_text *text, const char *format, ...);

struct icd_argument {
	char name[64];
	char type[64]; /* as clGetKernelArgInfo tells it */
	cl_kernel_arg_address_qualifier address;
	cl_kernel_arg_type_qualifier qualifiers;
	bool pointer;
	size_t element; /* bytes of the value or of what it points to */
	bool floating;
	bool has_sign;
};

/* A variable of the program's, `__global TYPE NAME = NUMBER;`. */
struct icd_variable {
	struct icd_argument type; /* and name */
	unsigned char data[8];	  /* launches and the host write here */
};

struct icd_code {
	char name[64];
	struct icd_unit *unit; /* whose variables it uses */
	char attributes[256];
	size_t work_group[3]; /* reqd_work_group_size, or zeros */
	bool is_poor;	      /* that is obeyed, but not told */
	unsigned n_arguments;
	struct icd_argument arguments[16];
	char *body;
};

/* What the compiler makes of a program for one device; nothing but the values
   of its variables changes. */
struct icd_unit {
	atomic_uint refs;
	cl_program_binary_type type;
	bool from_binary;
	bool tells_arguments; /* built with -cl-kernel-arg-info or -g */
	char *text;	      /* what the preprocessor left */
	char *specialised;    /* from a binary: lines "KERNEL X Y Z" */
	unsigned n_codes;
	struct icd_code *codes;
	unsigned n_variables;
	struct icd_variable variables[ICD_VARIABLES_MAX];
};
struct icd_unit *icd_unit_ref(struct icd_unit *unit);
void icd_unit_unref(struct icd_unit *unit);
/* The one of this name, or NULL. */
struct icd_variable *icd_variable_find(struct icd_unit *unit, const char *name,
				       size_t length);

struct icd_header {
	const char *name;
	const char *text;
};

/* preprocess.c: one text out of the source, its options and what it includes.
   CL_SUCCESS, CL_INVALID_BUILD_OPTIONS or CL_BUILD_PROGRAM_FAILURE, with
   the reason in the log; warnings go there too. */
cl_int icd_preprocess(const char *source, const char *options,
		      const struct icd_header *headers, unsigned n_headers,
		      struct icd_text *out, struct icd_text *log);

/* parse.c: kernels out of the text; NULL with a reason in the log. */
struct icd_unit *icd_parse(const char *text, cl_program_binary_type type,
			   struct icd_text *log);

/* binary.c: to bytes and back.  NULL for bytes that the driver refuses. */
bool icd_unit_write(const struct icd_unit *unit, cl_device_id device,
		    const char *specialised, struct icd_text *out);
struct icd_unit *icd_unit_read(const unsigned char *bytes, size_t size,
			       cl_device_id device);
/* The same once more, its variables as at the start. */
struct icd_unit *icd_unit_again(const struct icd_unit *unit);
/* The driver's own disk cache, in KILN_TEST_ICD_CACHE_DIR: a file for each text
   it has built, with a line for each specialisation. */
bool icd_cache_built(const struct icd_unit *unit);
bool icd_cache_knows(const struct icd_unit *unit, const char *line);
void icd_cache_add(const struct icd_unit *unit, const char *line);
void icd_cache_lines(const struct icd_unit *unit, struct icd_text *out);
uint64_t icd_hash(const void *data, size_t size);

/* run.c: run the body once for each work item.  With `memory` NULL it only
   checks that the body can be understood. */
struct icd_value {
	unsigned char bytes[16]; /* of an argument passed by value */
	size_t size;
	cl_mem mem;
	bool set;
};
struct icd_range {
	cl_uint dimensions;
	size_t offset[3];
	size_t global[3];
	size_t local[3];
};
/* The value of an expression of numbers. */
bool icd_constant(const char *text, long long *out_value);
bool icd_run(const struct icd_code *code, const struct icd_value *values,
	     const struct icd_range *range, struct icd_text *log);

/* ---- Programs and kernels ----------------------------------------------- */

enum icd_origin { ICD_SOURCE, ICD_IL, ICD_BINARY, ICD_BUILT_IN, ICD_LINKED };

/* One device's share of a program; all under icd_mutex. */
struct icd_build {
	cl_build_status status;
	struct icd_unit *given; /* from clCreateProgramWithBinary */
	struct icd_unit *unit;	/* what was built last */
	char *options;
	char *log;
	char *kept; /* first answer to a fetch */
	size_t kept_size;
	char *specialised; /* by launches */
};

struct icd_constant {
	struct icd_constant *next;
	cl_uint id;
	uint64_t value;
};

struct _cl_program {
	struct icd_head head;
	cl_context context;
	enum icd_origin origin;
	char *source;
	void *il;
	size_t il_size;
	cl_uint n_devices;
	cl_device_id devices[ICD_DEVICES_MAX];
	bool holds_devices;
	/* Under icd_mutex. */
	unsigned n_kernels;
	struct icd_build builds[ICD_DEVICES_MAX];
	/* The devices of the last build, in its order. */
	cl_uint n_last;
	cl_uint last[ICD_DEVICES_MAX];
	struct icd_constant *constants;
	struct icd_callback *callbacks;
};
void icd_program_unref(cl_program program);
/* Its devices, in the order of the call or, with KILN_TEST_ICD_SORT_DEVICES, of
   the context; `places` says where in the call each stood. */
void icd_program_take_devices(cl_program program, cl_uint n,
			      const cl_device_id *devices,
			      cl_uint places[ICD_DEVICES_MAX]);
/* With KILN_TEST_ICD_HOLD_DEVICES a program counts among its devices'
   references; called once it has its devices. */
void icd_program_hold_devices(cl_program program);
/* With KILN_TEST_ICD_WHOLE_BUILDS, the device that answers for this one: of
   the last build, where this one had no part in it; under the mutex. */
struct icd_build *icd_program_build(cl_program program, cl_uint index);
/* A launch specialised this kernel: binaries fetched from now on differ. */
void icd_program_specialise(cl_program program, cl_device_id device,
			    const char *kernel, const struct icd_range *range);

struct _cl_kernel {
	struct icd_head head;
	cl_program program;
	const struct icd_code *code;
	/* One for each device of the program, NULL where it is not built. */
	struct icd_unit *units[ICD_DEVICES_MAX];
	/* Under icd_mutex. */
	struct icd_value values[16];
};

/* A finished command's event, where one is wanted (queue.c). */
cl_int icd_done(cl_command_queue queue, cl_command_type type,
		cl_event *out_event);
/* A vendor's function by its name, or NULL (extension.c). */
void *icd_extension(const char *name);

/* ---- Behaviour from the environment (settings.c) -------------------------- */

bool icd_flag(const char *name, bool otherwise);
unsigned icd_number(const char *name, unsigned otherwise);
const char *icd_string(const char *name, const char *otherwise);
/* As long as the file that the variable names is there. */
void icd_wait_while(const char *name);
/* Take so many MiB of memory, for good. */
void icd_hog(const char *name);
/* Sleep for the milliseconds that the variable holds. */
void icd_delay(const char *name);
/* One line in the file of KILN_TEST_ICD_CALLS. */
__attribute__((format(printf, 1, 2))) void icd_count(const char *format, ...);

/* Answer an information query. */
cl_int icd_answer(const void *from, size_t from_size, size_t size, void *value,
		  size_t *out_size);
cl_int icd_answer_string(const char *string, size_t size, void *value,
			 size_t *out_size);
cl_int icd_answer_uint(cl_uint number, size_t size, void *value,
		       size_t *out_size);
cl_int icd_answer_ulong(cl_ulong number, size_t size, void *value,
			size_t *out_size);
cl_int icd_answer_size(size_t number, size_t size, void *value,
		       size_t *out_size);
cl_int icd_answer_pointer(const void *pointer, size_t size, void *value,
			  size_t *out_size);

/*
 * The entry points carry OpenCL's own names, hidden in the module, so that
 * <CL/cl.h> checks their types; only the loader's three are exported.
 */

#endif /* KI_TESTS_ICD_H */

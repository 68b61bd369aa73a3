/* SPDX-License-Identifier: MIT */

/*
 * kiln doctor: whether caching works here, in words.
 *
 * A loader passes over a layer that it cannot load without saying so, so the
 * last check runs a small OpenCL program under the layer and looks whether the
 * layer is in it.  The others say what to do about it if it is not.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/json.h"
#include "base/text.h"
#include "doctor.h"
#include "jobs.h"
#include "layers.h"
#include "out.h"
#include "quota.h"
#include "place.h"
#include "probe.h"
#include "store.h"
#include "verbs.h"

static const char *const results[] = { "ok", "note", "bad" };

/* As many as there are: a remote may have hundreds of servers. */
static struct ki_doctor_check *add_check(struct ki_doctor *doctor)
{
	struct ki_doctor_check *grown;
	int room = doctor->room ? 2 * doctor->room : 32;

	if (doctor->n == doctor->room) {
		grown = realloc(doctor->checks, (size_t)room * sizeof(*grown));
		doctor->is_short |= !grown;
		if (!grown)
			return NULL;
		doctor->checks = grown;
		doctor->room = room;
	}
	return &doctor->checks[doctor->n++];
}

void ki_doctor_say(struct ki_doctor *doctor, const char *name,
		   enum ki_doctor_result result, const char *remedy,
		   const char *format, ...)
{
	struct ki_doctor_check *check = add_check(doctor);
	va_list args;

	if (!check)
		return;
	check->name = name;
	check->result = result;
	check->remedy = remedy;
	va_start(args, format);
	vsnprintf(check->words, sizeof(check->words), format, args);
	va_end(args);
}

/* ---- Settings ---------------------------------------------------------------- */

static void check_settings(struct ki_doctor *doctor)
{
	char message[1024] = "out of memory";
	const char *warning;
	size_t i;

	if (ki_process_is_secure())
		ki_doctor_say(
			doctor, "settings", KI_DOCTOR_BAD,
			"run it without set-uid bit, "
			"set-gid bit and file capabilities",
			"this process has privileges that its user has not: "
			"kiln stays out of such programs");
	if (kiln_config_load(&doctor->config, message, sizeof(message)))
		ki_doctor_say(doctor, "settings", KI_DOCTOR_BAD,
			      "correct or unset it", "%s", message);
	else if (kiln_config_number(doctor->config, KILN_SET_DISABLE))
		ki_doctor_say(
			doctor, "settings", KI_DOCTOR_BAD, "unset it",
			"KILN_DISABLE turns caching off (from: %s)",
			kiln_config_origin(doctor->config, KILN_SET_DISABLE));
	else
		ki_doctor_say(doctor, "settings", KI_DOCTOR_FINE, NULL,
			      "all values are right");
	for (i = 0; (warning = kiln_config_warning(doctor->config, i)); i++)
		ki_doctor_say(doctor, "settings", KI_DOCTOR_NOTE, NULL, "%s",
			      warning);
	if (kiln_config_number(doctor->config, KILN_SET_READONLY))
		ki_doctor_say(
			doctor, "settings", KI_DOCTOR_NOTE, NULL,
			"KILN_READONLY: nothing new is kept (from: %s)",
			kiln_config_origin(doctor->config, KILN_SET_READONLY));
}

/* ---- The directory ------------------------------------------------------------- */

static int may(const char *path, int mode)
{
	return !faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}

/* The nearest folder above that exists. */
static void existing_parent(char path[KI_PATH_MAX])
{
	struct ki_file_info info;
	char *slash;

	while (ki_sys_posix.stat(&ki_sys_posix, path, &info)) {
		slash = strrchr(path, '/');
		if (!slash || slash == path) {
			snprintf(path, KI_PATH_MAX, "%s", slash ? "/" : ".");
			return;
		}
		*slash = '\0';
	}
}

static void check_absent(struct ki_doctor *doctor, const char *path,
			 const char *why)
{
	char parent[KI_PATH_MAX];

	snprintf(parent, sizeof(parent), "%s", path);
	existing_parent(parent);
	if (may(parent, W_OK | X_OK)) {
		ki_doctor_say(doctor, "directory", KI_DOCTOR_FINE, NULL,
			      "%s (%s); it will be made at first use", path,
			      why);
		ki_doctor_room(doctor, parent, NULL);
	} else {
		ki_doctor_say(doctor, "directory", KI_DOCTOR_BAD,
			      "make it, or set KILN_DIR to a "
			      "directory of your own",
			      "%s (%s) is not there and cannot be made in %s",
			      path, why, parent);
	}
}

/* What forbids to load code from it, or NULL. */
static const char *unsafe(const struct ki_file_info *info, int is_shared)
{
	if (S_ISLNK(info->mode))
		return "it is a symbolic link";
	if (!S_ISDIR(info->mode))
		return "it is no directory";
	if (info->uid != ki_user_id() && info->uid &&
	    (!is_shared || !ki_user_id()))
		return "it belongs to someone else";
	if (info->mode & S_IWOTH)
		return "everybody may write to it";
	if (info->mode & S_IWGRP && !is_shared &&
	    ki_group_is_private(info->gid) <= 0)
		return "a group may write to it";
	return NULL;
}

static int is_for_a_group(const struct ki_doctor *doctor)
{
	struct kiln_options options;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	return (options.flags & KILN_OPEN_SHARED) != 0;
}

static void check_present(struct ki_doctor *doctor, const char *path,
			  const char *why, const struct ki_file_info *info)
{
	const int is_shared = is_for_a_group(doctor);
	enum ki_file_system kind = KI_FS_UNKNOWN;
	const char *danger = unsafe(info, is_shared);

	if (danger) {
		ki_doctor_say(
			doctor, "directory", KI_DOCTOR_BAD,
			"chmod 700 and chown it, set KILN_DIR to a "
			"directory of your own, or KILN_SHARED if a group "
			"is meant to use it",
			"%s (%s) is not safe to load code from: %s", path, why,
			danger);
		return;
	}
	if (!may(path, R_OK | X_OK)) {
		ki_doctor_say(doctor, "directory", KI_DOCTOR_BAD,
			      "correct its permissions",
			      "%s (%s) cannot be read", path, why);
		return;
	}
	ki_doctor_say(doctor, "directory", KI_DOCTOR_FINE, NULL, "%s (%s)%s",
		      path, why,
		      is_shared ? ", shared: what its group puts there is code "
				  "that you run"
				: "");
	if (!may(path, W_OK))
		ki_doctor_say(
			doctor, "directory", KI_DOCTOR_NOTE, NULL,
			"it cannot be written: hits work, nothing new is kept");
	(void)ki_sys_posix.file_system(&ki_sys_posix, path, &kind);
	if (kind == KI_FS_LOCAL)
		ki_doctor_say(doctor, "directory", KI_DOCTOR_FINE, NULL,
			      "it is on a local file system");
	else
		ki_doctor_say(doctor, "directory", KI_DOCTOR_NOTE, NULL,
			      "it is not on a file system known to be local: "
			      "one file "
			      "per entry is kept there, which is slower");
}

#define QUOTAS_MAX 3 /* that are named */

/* Who puts more than it may keep. */
static void check_quotas(struct ki_doctor *doctor, struct kiln *kiln)
{
	struct ki_quota_list list;
	char size[32];

	if (ki_quota_list_load(kiln, &list)) {
		ki_doctor_say(doctor, "quotas", KI_DOCTOR_NOTE,
			      "set them again: kiln config --namespace NAME "
			      "--max-size SIZE",
			      "they cannot be read, and nobody heeds them");
		return;
	}
	for (size_t i = 0, n = 0; i < list.n && n < QUOTAS_MAX; i++) {
		const struct kiln_namespace *row = &list.rows[i];

		if (row->n_refused && ++n)
			ki_doctor_say(doctor, "quotas", KI_DOCTOR_NOTE,
				      "give it more: kiln config --namespace "
				      "NAME --max-size SIZE",
				      "%llu put%s of %s not stored, for its "
				      "quota of %s",
				      (unsigned long long)row->n_refused,
				      row->n_refused == 1 ? "" : "s", row->name,
				      ki_format_size(row->bytes_max, size,
						     sizeof(size)));
	}
	ki_quota_list_free(&list);
}

static void check_store(struct ki_doctor *doctor, const char *path,
			int is_writable)
{
	struct kiln_store_info info = { 0 };
	struct kiln_options options;
	enum kiln_status status;
	struct kiln *kiln;
	char size[32];

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	options.flags |= KI_STORE_LOOK;
	status = kiln_open(&options, &kiln);
	if (!status) {
		status = kiln_store_status(kiln);
		if (!status)
			status = kiln_store_info(kiln, &info);
		if (!status)
			check_quotas(doctor, kiln);
		kiln_close(kiln);
	}
	if (status == KILN_MISS && !is_writable)
		ki_doctor_say(doctor, "store", KI_DOCTOR_BAD,
			      "make the directory writable, or set KILN_DIR to "
			      "one of "
			      "your own",
			      "nothing is cached, and nothing can be");
	else if (status == KILN_MISS)
		ki_doctor_say(doctor, "store", KI_DOCTOR_FINE, NULL,
			      "nothing was cached yet");
	else if (status)
		ki_doctor_say(
			doctor, "store", KI_DOCTOR_BAD,
			"correct the permissions of its files, or set KILN_DIR "
			"to "
			"a directory of your own",
			"%s cannot be read: %s (%s)",
			options.store_url ? options.store_url : "the store",
			ki_status_words(status), kiln_status_name(status));
	else
		ki_doctor_say(doctor, "store", KI_DOCTOR_FINE, NULL,
			      "%s, %llu entries (bookkeeping too), %s",
			      options.store_url,
			      (unsigned long long)info.n_entries,
			      ki_format_size(info.bytes, size, sizeof(size)));
	if (is_writable && (!status || status == KILN_MISS))
		ki_doctor_room(doctor, path, status ? NULL : &info);
}

/* The store is a pack: as programs will have it. */
static void check_pack_store(struct ki_doctor *doctor)
{
	struct kiln_options options;
	enum kiln_status status;
	struct kiln *kiln;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	status = kiln_open(&options, &kiln);
	if (!status) {
		status = kiln_store_status(kiln);
		kiln_close(kiln);
	}
	if (status)
		ki_doctor_say(doctor, "store", KI_DOCTOR_BAD,
			      "see what 'kiln verify pack:FILE' says of it, or "
			      "set KILN_STORE to a directory",
			      "%s cannot be used: %s (%s)", options.store_url,
			      ki_status_words(status),
			      kiln_status_name(status));
	else
		ki_doctor_say(doctor, "store", KI_DOCTOR_FINE, NULL,
			      "%s: what it has is found, nothing new is kept",
			      options.store_url);
}

static void check_shared(struct ki_doctor *doctor)
{
	if (kiln_config_number(doctor->config, KILN_SET_SHARED) &&
	    !is_for_a_group(doctor))
		ki_doctor_say(
			doctor, "settings", KI_DOCTOR_NOTE,
			"name it by KILN_DIR or KILN_STORE",
			"KILN_SHARED (from: %s) is for a directory that "
			"is named: this one is not shared",
			kiln_config_origin(doctor->config, KILN_SET_SHARED));
}

static void check_directory(struct ki_doctor *doctor)
{
	const char *why = "", *path, *store;
	struct ki_file_info info;
	int err;

	store = kiln_config_value(doctor->config, KILN_SET_STORE);
	path = kiln_config_directory(doctor->config, &why);
	if (!path) {
		ki_doctor_say(doctor, "directory", KI_DOCTOR_BAD,
			      store && !strncmp(store, "neo:", 4)
				      ? "correct that, or name the directory: "
					"KILN_STORE=neo:DIR"
			      : store && !strncmp(store, "sycl:", 5)
				      ? "correct that, or name the directory: "
					"KILN_STORE=sycl:DIR"
				      : "set KILN_DIR to a directory of your "
					"own",
			      "%s", why);
		return;
	}
	if (store && !strncmp(store, "pack:", 5)) {
		check_pack_store(doctor);
		return;
	}
	err = ki_sys_posix.lstat(&ki_sys_posix, path, &info);
	if (err == -ENOENT) {
		check_absent(doctor, path, why);
	} else if (err) {
		ki_doctor_say(doctor, "directory", KI_DOCTOR_BAD,
			      "correct its permissions", "%s (%s): %s", path,
			      why, strerror(-err));
	} else {
		check_present(doctor, path, why, &info);
		check_store(doctor, path, may(path, W_OK));
	}
}

/* As programs will have them. */
static void check_packs(struct ki_doctor *doctor)
{
	static const char in_file[] = "see what 'kiln verify pack:FILE' says "
				      "of it, or take it out of KILN_PACKS";
	static const char on_server[] =
		"see whether the server has it, can be reached, and gives "
		"ranges; it counts with a signature of a trusted key alone "
		"('kiln key trust FILE')";
	struct kiln_options options;
	enum kiln_status status;
	struct kiln *kiln;
	const char *path;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	options.store_url = NULL;
	if (!options.packs || kiln_open(&options, &kiln))
		return;
	for (size_t i = 0; (path = kiln_pack_given(kiln, i, &status)); i++)
		if (status)
			ki_doctor_say(doctor, "pack", KI_DOCTOR_NOTE,
				      strstr(path, "://") ? on_server : in_file,
				      "%s is not used: %s (%s)", path,
				      ki_status_words(status),
				      kiln_status_name(status));
		else
			ki_doctor_say(doctor, "pack", KI_DOCTOR_FINE, NULL,
				      "%s is asked behind the store", path);
	kiln_close(kiln);
}

/* ---- OpenCL -------------------------------------------------------------------- */

static void check_layer(struct ki_doctor *doctor)
{
	struct ki_probe_layer probe;

	doctor->layer_is_there = !ki_place_layer(doctor->layer);
	if (!doctor->layer_is_there) {
		ki_doctor_say(doctor, "layer", KI_DOCTOR_BAD,
			      "install kiln again", "%s is missing",
			      doctor->layer);
		return;
	}
	ki_probe_layer(doctor->layer, &probe);
	if (!probe.is_loadable)
		ki_doctor_say(doctor, "layer", KI_DOCTOR_BAD,
			      "install kiln again", "it cannot be loaded: %s",
			      probe.error);
	else if (!ki_layers_can_name(doctor->layer))
		ki_doctor_say(doctor, "layer", KI_DOCTOR_BAD,
			      "install kiln elsewhere",
			      "%s has a ':' in its path, which OPENCL_LAYERS "
			      "cannot hold",
			      doctor->layer);
	else
		ki_doctor_say(doctor, "layer", KI_DOCTOR_FINE, NULL,
			      "%s can be loaded", doctor->layer);
}

static void check_loader(struct ki_doctor *doctor)
{
	const struct ki_probe_loader *loader = &doctor->loader;
	char name[3 * KI_PROBE_TEXT];

	snprintf(name, sizeof(name),
		 *loader->vendor ? "%s (%s, version %s)" : "%s", loader->path,
		 loader->vendor, loader->version);
	if (!loader->is_there)
		ki_doctor_say(doctor, "loader", KI_DOCTOR_BAD,
			      "apt install ocl-icd-libopencl1",
			      "programs find no OpenCL: %s", loader->error);
	else if (!loader->knows_layers)
		ki_doctor_say(doctor, "loader", KI_DOCTOR_BAD,
			      "use ocl-icd 2.3 or newer, or the "
			      "loader of Khronos",
			      "%s knows no layers", name);
	else
		ki_doctor_say(doctor, "loader", KI_DOCTOR_FINE, NULL,
			      "%s knows layers", name);
}

static void check_driver(struct ki_doctor *doctor, int i)
{
	const char *name = doctor->loader.platforms[i].name;
	int n_devices = doctor->loader.platforms[i].n_devices;

	if (!n_devices)
		ki_doctor_say(doctor, "drivers", KI_DOCTOR_NOTE, NULL,
			      "%s, but it has no device", name);
	else if (doctor->has_jobs && ki_probe_worker(doctor->worker, name))
		ki_doctor_say(
			doctor, "drivers", KI_DOCTOR_FINE, NULL,
			"%s, devices: %d; kiln-worker makes jobs for its CPUs",
			name, n_devices);
	else
		ki_doctor_say(
			doctor, "drivers", KI_DOCTOR_FINE, NULL,
			"%s, devices: %d; kept is what it hands out in passing",
			name, n_devices);
}

static void check_drivers(struct ki_doctor *doctor)
{
	const struct ki_probe_loader *loader = &doctor->loader;
	const char *vendors = getenv("OCL_ICD_VENDORS");
	const char *from = vendors ? vendors : "/etc/OpenCL/vendors";
	int i;

	if (!loader->is_there)
		return;
	if (loader->n_platforms < 1)
		ki_doctor_say(doctor, "drivers", KI_DOCTOR_BAD,
			      vendors ? "correct or unset OCL_ICD_VENDORS"
				      : "install one, for example: apt install "
					"pocl-opencl-icd",
			      "none is found (looked in %s)", from);
	for (i = 0; i < loader->n_named; i++)
		check_driver(doctor, i);
}

static void check_active(struct ki_doctor *doctor)
{
	const char *others = getenv("OPENCL_LAYERS");

	if (others && *others)
		ki_doctor_say(doctor, "program", KI_DOCTOR_NOTE, NULL,
			      "OPENCL_LAYERS is set already: %s", others);
	if (doctor->loader.layer_is_active)
		ki_doctor_say(doctor, "program", KI_DOCTOR_FINE, NULL,
			      "a small OpenCL program under 'kiln run' has the "
			      "layer");
	else
		ki_doctor_say(doctor, "program", KI_DOCTOR_BAD, NULL,
			      "a small OpenCL program under 'kiln run' does "
			      "not get the "
			      "layer%s%s",
			      *doctor->loader.error ? ": " : "",
			      doctor->loader.error);
}

#define SYSTEM_LAYERS	     "/etc/OpenCL/layers"
#define LAYER_FILE_BYTES_MAX 4096

/* Whether a file of the system's layers has this line first. */
static int names_layer(const char *path, const char *layer)
{
	size_t size;
	void *text;
	int is_ours;

	if (ki_read_file(&ki_sys_posix, path, LAYER_FILE_BYTES_MAX, &text,
			 &size))
		return 0;
	((char *)text)[strcspn(text, "\r\n")] = '\0';
	is_ours = !strcmp(text, layer);
	free(text);
	return is_ours;
}

/* A loader that reads it gives the layer to every program; Debian 12's does
   not, and says nothing. */
static void check_layer_file(struct ki_doctor *doctor)
{
	const char *folder = getenv("OPENCL_LAYER_PATH");
	struct ki_probe_loader loader;
	char path[KI_PATH_MAX];

	if (ki_path_join(path, folder ? folder : SYSTEM_LAYERS, "kiln.lay") ||
	    !names_layer(path, doctor->layer))
		return;
	ki_probe_loader(NULL, doctor->layer, &loader);
	if (loader.layer_is_active)
		ki_doctor_say(doctor, "loader", KI_DOCTOR_FINE, NULL,
			      "%s: every OpenCL program gets the layer", path);
	else
		ki_doctor_say(doctor, "loader", KI_DOCTOR_NOTE,
			      "start programs by 'kiln run', or use ocl-icd "
			      "2.3.2 or newer, or the loader of Khronos",
			      "it ignores %s", path);
}

static void check_opencl(struct ki_doctor *doctor)
{
	char *layers = NULL;

	check_layer(doctor);
	if (doctor->layer_is_there)
		layers = ki_layers_with(getenv("OPENCL_LAYERS"), doctor->layer);
	ki_probe_loader(layers, layers ? doctor->layer : NULL, &doctor->loader);
	free(layers);
	check_loader(doctor);
	if (doctor->layer_is_there && doctor->loader.is_there)
		check_layer_file(doctor);
	check_drivers(doctor);
	if (doctor->layer_is_there && doctor->loader.knows_layers)
		check_active(doctor);
}

/* ---- Jobs ---------------------------------------------------------------------- */

static void check_jobs(struct ki_doctor *doctor)
{
	const char *spool = kiln_config_spool(doctor->config);
	const char *worker = doctor->worker;

	if (!kiln_config_number(doctor->config, KILN_SET_SPOOL))
		ki_doctor_say(
			doctor, "jobs", KI_DOCTOR_NOTE, NULL,
			"none are written: KILN_SPOOL (from: %s)",
			kiln_config_origin(doctor->config, KILN_SET_SPOOL));
	else if (ki_place_worker(doctor->worker))
		ki_doctor_say(doctor, "jobs", KI_DOCTOR_BAD,
			      "install kiln again",
			      "%s, which makes them, is missing", worker);
	else if (!may(worker, X_OK))
		ki_doctor_say(
			doctor, "jobs", KI_DOCTOR_BAD, "install kiln again",
			"%s, which makes them, cannot be executed", worker);
	else if (spool) {
		ki_doctor_say(doctor, "jobs", KI_DOCTOR_FINE, NULL,
			      "%zu pending; %s makes them",
			      ki_jobs_pending(spool), worker);
		doctor->has_jobs = 1;
	}
}

/* ---- Saying it ------------------------------------------------------------------- */

static int works(const struct ki_doctor *doctor)
{
	int i;

	for (i = 0; i < doctor->n; i++)
		if (doctor->checks[i].result == KI_DOCTOR_BAD)
			return 0;
	return !doctor->is_short;
}

static void print_json(struct ki_bytes *out, const struct ki_doctor *doctor)
{
	struct ki_json json;
	int i;

	ki_out_json(out, &json);
	ki_json_bool(&json, "works", works(doctor));
	ki_json_array(&json, "checks");
	for (i = 0; i < doctor->n; i++) {
		const struct ki_doctor_check *check = &doctor->checks[i];

		ki_json_object(&json, NULL);
		ki_json_string(&json, "name", check->name);
		ki_json_string(&json, "result", results[check->result]);
		ki_json_string(&json, "words", check->words);
		if (check->remedy)
			ki_json_string(&json, "remedy", check->remedy);
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_end(&json);
}

static void print_text(struct ki_bytes *out, const struct ki_doctor *doctor)
{
	static const char *const colours[] = { "\033[32m", "\033[33m",
					       "\033[31m" };
	int width = ki_out_columns(), is_colourful = ki_out_is_colourful(1), i;

	for (i = 0; i < doctor->n; i++) {
		const struct ki_doctor_check *check = &doctor->checks[i];

		ki_bytes_printf(out, "%s%-5s%s%-11s",
				is_colourful ? colours[check->result] : "",
				results[check->result],
				is_colourful ? "\033[0m" : "", check->name);
		ki_out_wrap(out, check->words, 16, 16, width);
		if (check->remedy) {
			ki_bytes_add_string(out, "                -> ");
			ki_out_wrap(out, check->remedy, 19, 19, width);
		}
	}
	ki_bytes_printf(out, "\n%s\n",
			works(doctor) ? "Caching works here."
				      : "Caching does not work here.");
}

int ki_verb_doctor(const struct ki_command *command)
{
	struct ki_doctor *doctor = calloc(1, sizeof(*doctor));
	struct ki_bytes out;
	int status, has_helper;

	if (!doctor)
		return ki_store_failed(KILN_E_NO_MEMORY, "doctor");
	check_settings(doctor);
	if (doctor->config) {
		check_shared(doctor);
		check_directory(doctor);
		has_helper = ki_doctor_start_remote(doctor);
		check_packs(doctor);
		if (has_helper)
			ki_doctor_remote(doctor);
		check_jobs(doctor);
	}
	check_opencl(doctor);
	if (doctor->config)
		ki_doctor_levelzero(doctor);

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, doctor);
	else
		print_text(&out, doctor);
	status = ki_out_write(&out,
			      works(doctor) ? KI_EXIT_OK : KI_EXIT_UNAVAILABLE);
	kiln_config_free(doctor->config);
	free(doctor->checks);
	free(doctor);
	return status;
}

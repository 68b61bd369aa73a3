/* SPDX-License-Identifier: MIT */

/*
 * kiln doctor on Level Zero.  Few machines have it: what is missing is a note,
 * and bad is only what somebody has set wrongly, or what is there and does not
 * get the proxy.
 */

#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#include "levelzero.h"
#include "place.h"

/* What `kiln run` sets, or what one further up has set. */
struct setting {
	char *list;
	char *driver;
};

static int is_set_already(const char *proxy, struct setting *setting)
{
	const char *list = getenv(KI_ZE_LIST), *driver = getenv(KI_ZE_DRIVER);

	if (!list || !driver || !strstr(list, proxy))
		return 0;
	setting->list = strdup(list);
	setting->driver = strdup(driver);
	return setting->list && setting->driver;
}

static int find(struct ki_doctor *doctor, const char *proxy,
		struct setting *setting)
{
	const char *wanted =
		kiln_config_value(doctor->config, KILN_SET_ZE_DRIVER);
	const char *list = getenv(KI_ZE_LIST);

	if (is_set_already(proxy, setting) ||
	    !ki_levelzero_find(doctor->config, proxy, &setting->list,
			       &setting->driver))
		return 0;
	if (wanted)
		ki_doctor_say(
			doctor, "ze driver", KI_DOCTOR_BAD,
			list ? "put it into " KI_ZE_LIST
			     : "correct or unset it",
			"KILN_ZE_DRIVER (from: %s) is %s, which is not %s",
			kiln_config_origin(doctor->config, KILN_SET_ZE_DRIVER),
			wanted, list ? "in " KI_ZE_LIST : "to be found");
	else if (list)
		ki_doctor_say(doctor, "ze driver", KI_DOCTOR_NOTE,
			      "set KILN_ZE_DRIVER to the one to be cached",
			      KI_ZE_LIST " is set: %s; none of these is a "
					 "driver that kiln knows",
			      list);
	else
		ki_doctor_say(doctor, "ze driver", KI_DOCTOR_NOTE, NULL,
			      "none is found: no program here can use Level "
			      "Zero");
	return -1;
}

static void say_loader(struct ki_doctor *doctor,
		       const struct ki_probe_levelzero *probe, const char *list)
{
	if (!probe->is_there)
		ki_doctor_say(doctor, "ze loader", KI_DOCTOR_NOTE, NULL,
			      "programs find no Level Zero: %s", probe->error);
	else if (!probe->knows_lists)
		ki_doctor_say(doctor, "ze loader", KI_DOCTOR_BAD,
			      "use libze1 1.8 or newer",
			      "%s does not know " KI_ZE_LIST, probe->path);
	else if (probe->knows_handles && ki_levelzero_is_bypassed(list))
		ki_doctor_say(doctor, "ze loader", KI_DOCTOR_BAD,
			      "unset it, or set it to 0",
			      KI_ZE_HANDLES " has %s go past the proxy",
			      probe->path);
	else
		ki_doctor_say(doctor, "ze loader", KI_DOCTOR_FINE, NULL,
			      "%s%s%s can be given drivers", probe->path,
			      *probe->version ? ", version " : "",
			      probe->version);
}

static void say_driver(struct ki_doctor *doctor, const struct setting *setting)
{
	const char *from =
		kiln_config_value(doctor->config, KILN_SET_ZE_DRIVER)
			? kiln_config_origin(doctor->config, KILN_SET_ZE_DRIVER)
			: "kiln run";

	if (ki_levelzero_knows(setting->driver, strlen(setting->driver)))
		ki_doctor_say(doctor, "ze driver", KI_DOCTOR_FINE, NULL,
			      "%s (from: %s)", setting->driver, from);
	else
		ki_doctor_say(doctor, "ze driver", KI_DOCTOR_NOTE, NULL,
			      "%s (from: %s): not one of Intel's for GPUs; "
			      "kiln caches only for drivers that it knows",
			      setting->driver, from);
}

static void say_program(struct ki_doctor *doctor,
			const struct ki_probe_levelzero *probe,
			const struct setting *setting)
{
	if (!probe->proxy_is_active)
		ki_doctor_say(doctor, "ze program", KI_DOCTOR_BAD, NULL,
			      "a small Level Zero program under 'kiln run' "
			      "does not get the proxy (" KI_ZE_LIST " is %s)%s"
			      "%s",
			      setting->list, *probe->error ? ": " : "",
			      probe->error);
	else if (!probe->driver_is_active)
		ki_doctor_say(doctor, "ze program", KI_DOCTOR_NOTE,
			      "install it again", "the proxy cannot load %s",
			      setting->driver);
	else if (probe->n_devices < 1)
		ki_doctor_say(doctor, "ze program", KI_DOCTOR_NOTE, NULL,
			      "a small Level Zero program under 'kiln run' has "
			      "the proxy, but finds no device (zeInit: %#x)",
			      probe->init);
	else
		ki_doctor_say(doctor, "ze program", KI_DOCTOR_FINE, NULL,
			      "a small Level Zero program under 'kiln run' has "
			      "the proxy; devices: %d (%s)",
			      probe->n_devices, probe->device);
}

static void check_program(struct ki_doctor *doctor, const char *proxy,
			  const struct setting *setting)
{
	struct ki_probe_levelzero probe;

	ki_probe_levelzero(setting->list, setting->driver, proxy, &probe);
	say_loader(doctor, &probe, setting->list);
	say_driver(doctor, setting);
	if (probe.is_there && probe.knows_lists)
		say_program(doctor, &probe, setting);
}

void ki_doctor_levelzero(struct ki_doctor *doctor)
{
	struct setting setting = { NULL, NULL };
	char proxy[KI_PATH_MAX];

	if (ki_place_levelzero(proxy))
		ki_doctor_say(doctor, "ze proxy", KI_DOCTOR_NOTE, NULL,
			      "%s is missing: Level Zero is not cached", proxy);
	else if (strchr(proxy, ','))
		ki_doctor_say(doctor, "ze proxy", KI_DOCTOR_BAD,
			      "install kiln elsewhere",
			      "%s has a ',' in its path, which " KI_ZE_LIST
			      " cannot hold",
			      proxy);
	else if (!find(doctor, proxy, &setting))
		check_program(doctor, proxy, &setting);
	free(setting.list);
	free(setting.driver);
}

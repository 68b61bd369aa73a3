/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_VERBS_H
#define KI_CLI_VERBS_H

#include "options.h"

ki_verb_fn ki_verb_run;
ki_verb_fn ki_verb_wait;
ki_verb_fn ki_verb_wrap;
ki_verb_fn ki_verb_ls;
ki_verb_fn ki_verb_show;
ki_verb_fn ki_verb_extract;
ki_verb_fn ki_verb_why;
ki_verb_fn ki_verb_rebuild;
ki_verb_fn ki_verb_rm;
ki_verb_fn ki_verb_stats;
ki_verb_fn ki_verb_report;
ki_verb_fn ki_verb_top;
ki_verb_fn ki_verb_verify;
ki_verb_fn ki_verb_gc;
ki_verb_fn ki_verb_clear;
ki_verb_fn ki_verb_export;
ki_verb_fn ki_verb_import;
ki_verb_fn ki_verb_doctor;
ki_verb_fn ki_verb_config;
ki_verb_fn ki_verb_key;

/* `kiln why` without a key. */
ki_verb_fn ki_why_run;

/* `kiln config` where it is about a store. */
ki_verb_fn ki_limit;
ki_verb_fn ki_quota;

#endif /* KI_CLI_VERBS_H */

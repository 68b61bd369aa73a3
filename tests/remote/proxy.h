/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_REMOTE_PROXY_H
#define KI_TESTS_REMOTE_PROXY_H

/*
 * A proxy before a real server, in a process of its own, that delays and spoils
 * what goes through it as a script says.  It knows where requests of HTTP/1.1 and
 * of Redis begin and end, so that it can answer some in the server's place; what
 * the server says it knows as bytes only.
 *
 *	client ---> [request, request, ...] --- delay ---> server
 *	       <--- delay --- [bytes, spoiled] ----------
 *
 * A delay holds back each byte for that long and nothing else: what is pipelined
 * stays so, in its order.
 *
 * No asserts here, and no cmocka: benchmarks use it too.  What goes wrong ends the
 * program with a message.
 */

#include <stdint.h>

enum proxy_fault {
	PROXY_PASS,
	PROXY_REFUSE,  /* nobody listens; connections that there are go */
	PROXY_CUT,     /* after so many bytes of the answer it hangs up */
	PROXY_RESET,   /* the same by RST */
	PROXY_HANG,    /* the same, but nothing comes any more */
	PROXY_FLIP,    /* that byte of the answer is another one */
	PROXY_ANSWER,  /* with `answer`; the server hears nothing */
	PROXY_ENDLESS, /* the same, and zeros for ever after */
	PROXY_RENAME,  /* names `from` in requests are `to` */
};

#define PROXY_NAME	   64 /* hexadecimal digits */
#define PROXY_ANSWER_BYTES 512

struct proxy_script {
	uint32_t to_server_us, to_client_us; /* delays */
	uint64_t bytes_s; /* of answers, of a connection; 0: as they come */
	enum proxy_fault fault;
	char verb[16];	/* of which requests: "GET", "SET"; "": of all */
	unsigned times; /* only of the first so many; 0: of all */
	uint64_t after;
	char answer[PROXY_ANSWER_BYTES];
	char from[PROXY_NAME], to[PROXY_NAME];
};

struct proxy_counts {
	uint64_t n_connections;
	uint64_t n_requests; /* that came, answered by whomever */
	uint64_t n_meant;    /* of these, with the verb of the script */
	uint64_t n_faults;   /* of these, spoiled */
	uint64_t bytes_to_client;
};

struct proxy;

/* Before the server at this port of loopback, or at this path. */
struct proxy *proxy_open(uint16_t server_port);
struct proxy *proxy_open_path(const char *server_path);
void proxy_close(struct proxy *proxy); /* NULL is fine */

/* Where it listens on loopback; always the same. */
uint16_t proxy_port(const struct proxy *proxy);

/* From now on, for requests that come from now on; `times` counts anew. */
void proxy_set(struct proxy *proxy, const struct proxy_script *script);

struct proxy_counts proxy_counts(struct proxy *proxy);

/* Until none of the counts is below these; what does not come in a while ends the
   program. */
void proxy_await(struct proxy *proxy, const struct proxy_counts *at_least);

#endif /* KI_TESTS_REMOTE_PROXY_H */

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules.c - which sockets become rsockets: streams over IPv4 and IPv6, unless the administrator has
 * rules. Then a socket that no rule names stays as it is. /etc/rdma/rsocket/preload_config:
 *
 *      # program  domain                type                protocol      (* stands for all)
 *      nc         INET | INET6          STREAM | DGRAM      TCP | UDP
 *
 * A program is meant when its name begins with the rule's. RS_SQ_SIZE, RS_RQ_SIZE and RS_INLINE in
 * the environment set what SOL_RDMA's options would.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rspreload/rspreload.h"

#define RULES "/etc/rdma/rsocket/preload_config"

enum { RULES_MAX = 64, ANY = 0, UNKNOWN = -1 };

struct rule {
	char program[64];
	int domain, type, protocol; /* 0: any */
};

static struct rule rules[RULES_MAX];
static size_t rule_count;

struct word {
	const char *word; /* also behind AF_, PF_, SOCK_ or IPPROTO_ */
	int value;
};

static int meaning(const char *text, const struct word *words, size_t count)
{
	const char *plain = text;
	const char *prefixes[] = {"AF_", "PF_", "SOCK_", "IPPROTO_"};
	size_t i;

	if (strcmp(text, "*") == 0)
		return ANY;
	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncasecmp(text, prefixes[i], strlen(prefixes[i])) == 0)
			plain = text + strlen(prefixes[i]);
	for (i = 0; i < count; i++)
		if (strcasecmp(plain, words[i].word) == 0)
			return words[i].value;
	return UNKNOWN;
}

static void read_rule(const char *line)
{
	static const struct word domains[] = {{"INET", AF_INET}, {"INET6", AF_INET6}};
	static const struct word types[] = {{"STREAM", SOCK_STREAM}, {"DGRAM", SOCK_DGRAM}};
	static const struct word protocols[] = {{"TCP", IPPROTO_TCP}, {"UDP", IPPROTO_UDP}};
	char domain[16], type[16], protocol[16];
	struct rule *rule = &rules[rule_count];

	if (line[0] == '#' || rule_count == RULES_MAX ||
	    sscanf(line, "%63s %15s %15s %15s", rule->program, domain, type, protocol) != 4)
		return;
	rule->domain = meaning(domain, domains, 2);
	rule->type = meaning(type, types, 2);
	rule->protocol = meaning(protocol, protocols, 2);
	if (rule->domain != UNKNOWN && rule->type != UNKNOWN && rule->protocol != UNKNOWN)
		rule_count++;
}

static void read_rules(void)
{
	FILE *file = fopen(RULES, "re");
	char line[256];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		read_rule(line);
	fclose(file);
}

bool vb_preload_wanted(int domain, int type, int protocol)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	size_t i;

	if ((domain != AF_INET && domain != AF_INET6) ||
	    (type != SOCK_STREAM && type != SOCK_DGRAM))
		return false;
	if (!protocol)
		protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	pthread_once(&once, read_rules);
	if (!rule_count)
		return type == SOCK_STREAM && protocol == IPPROTO_TCP;
	for (i = 0; i < rule_count; i++) {
		const struct rule *rule = &rules[i];

		if ((strcmp(rule->program, "*") == 0 ||
		     strncasecmp(rule->program, program_invocation_short_name,
				 strlen(rule->program)) == 0) &&
		    (!rule->domain || rule->domain == domain) &&
		    (!rule->type || rule->type == type) &&
		    (!rule->protocol || rule->protocol == protocol))
			return true;
	}
	return false;
}

static void set_size(int rsocket, const char *variable, int option)
{
	const char *text = getenv(variable);
	int value = text ? atoi(text) : 0;

	if (value > 0)
		rsetsockopt(rsocket, SOL_RDMA, option, &value, sizeof(value));
}

void vb_preload_sizes(int rsocket)
{
	set_size(rsocket, "RS_SQ_SIZE", RDMA_SQSIZE);
	set_size(rsocket, "RS_RQ_SIZE", RDMA_RQSIZE);
	set_size(rsocket, "RS_INLINE", RDMA_INLINE);
}
